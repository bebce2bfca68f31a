/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of this process, and the agent that reads it. */
#pragma once

#include "ring.h"

#include <stdbool.h>

/* NULL until an agent was there; in a child after fork until it has met one by itself. */
extern _Atomic(struct cwdp_nccl_ring *) nccl_ring;

/* Makes the ring, unless there is one, if there is an agent to take it; the ring, or NULL. Keeps errno. */
struct cwdp_nccl_ring *agent_meet(void);

/* Passes the ring to the next agent where the last one is gone; waits for nobody. Keeps errno. */
void agent_look(void);
