/* SPDX-License-Identifier: Apache-2.0 */
/* Having a queue pair take another path by draining its send queue, where its device has nothing better. */
#pragma once

#include "known.h"

/* Does so; what is posted meanwhile waits. It gives way to a call of the program (EBUSY), and to the deadline
 * (ETIMEDOUT): then the queue pair goes on by the path that it had.
 */
int drain_and_move(struct known *known, uint32_t flow_label, uint64_t deadline_ns);

/* Has those go on that were not drained when it gave way, as soon as their devices let them. Whether there
 * are any left.
 */
bool drain_resume(void);
