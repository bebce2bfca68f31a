/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a connection in one process, for tests. */
#pragma once

/* Prints a few transfers: a line "transfer MTU BYTES", then one for each packet, with its sender (requester,
 * responder), whether it is lost (lost, kept), and its bytes from the IP header on in hexadecimal. */
void dump_transfers(void);
