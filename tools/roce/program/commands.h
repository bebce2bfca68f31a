/* SPDX-License-Identifier: Apache-2.0 */
/* What a host is told on standard input, a line each; times are CLOCK_MONOTONIC in ns.
 *
 *	start START_NS UNTIL_NS    begin then; post no messages later than UNTIL_NS, unless that is 0
 *	finish                     post no more messages
 *	stop                       print the result and exit; the end of input says the same
 */
#pragma once

#include "host.h"

/* Reads and obeys what standard input has. */
void command_read(struct host *host);
