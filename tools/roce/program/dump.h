/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a connection in one process, for tests. */
#pragma once

/* Prints a few transfers: a line "transfer MTU BYTES"; one for each packet, with its sender (requester,
 * responder), its fate (kept, lost, late) and its bytes from the IP header on in hexadecimal; and a line
 * "gaps TOTAL OVERTAKEN" with what the responder saw. */
void dump_transfers(void);
