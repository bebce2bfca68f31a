/* SPDX-License-Identifier: Apache-2.0 */
/* Events under way that need memory, as operations and steps do. A handle is no pointer: one that is stale,
 * another process's or nobody's is told from others, and nothing is read by it.
 */
#pragma once

#include "ring.h"

#include <stdbool.h>

struct slot {
	_Atomic uint32_t number; /* odd while it is used; it grows with each use */
	_Atomic uint32_t below;  /* the next one that is free */
	uint32_t waits_for;      /* enum cwdp_nccl_wait */
	uint64_t since_ns;
	uint64_t op;            /* of a step: its operation's name */
	uint64_t peer_ns;       /* of an operation: how long its chunks have waited for the peer, one after
				   the other; of a step: how long they had when it was given to the GPU */
	uint64_t peer_since_ns; /* of an operation: since when one waits; 0: none does */
	struct cwdp_nccl_record record;
};

/* Makes memory for them, unless it is there; by one thread at a time. */
bool slots_make(void);

/* In a child after fork there are none. */
void slots_forget(void);

/* One that is free, or NULL. */
struct slot *slot_take(void);
void slot_free(struct slot *slot);

/* 60 bits that name it. */
uint64_t slot_name(const struct slot *slot);
struct slot *slot_named(uint64_t name);
