/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that talks with the agent of this host: it takes tables and orders in, and tells of queue pairs.
 */
#pragma once

#include <stdbool.h>

/* Whether the shim does anything: CWDP_VERBS=off says that it is to pass all calls on. CWDP_VERBS=/PATH names
 * the agent's socket where it is not the usual one, as in containers.
 */
bool agent_wanted(void);

/* Whether bytes are counted: not with CWDP_VERBS_COUNT=off. */
bool agent_wants_counts(void);

/* Starts the thread where it does not run yet. The first call of a process waits for a table, 10 ms at most.
 */
void agent_start(void);

/* Wakes it where there is something to tell. */
void agent_wake(void);

/* A device has refused a flow label of the table. */
void agent_count_refused(void);
