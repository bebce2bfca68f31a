/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of a connection in one process, for tests. */
#pragma once

/* Prints every packet of a few transfers as a line: its sender (requester, responder), whether it is lost
 * (lost, kept), and its bytes from the IP header on in hexadecimal. */
void dump_transfers(void);
