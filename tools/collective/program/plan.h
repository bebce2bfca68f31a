/* SPDX-License-Identifier: Apache-2.0 */
/* Who sends what to whom, and when: the same in each iteration. Nothing but arithmetic. */
#pragma once

#include "options.h"

#include <stddef.h>

#define MOST_OPS (2 * (MOST_RANKS - 1) * MOST_CHANNELS)

struct plan_step {
	size_t offset; /* bytes from the beginning of the data: where it is from, or where it goes */
	size_t bytes;
	int needs;     /* sending: how many steps of `after` must have been taken in before */
	bool is_added; /* receiving: to what is there */
};

/* What goes to a peer, or comes from it, by one channel. */
struct plan_op {
	int call; /* of which call of the plan */
	int peer;
	int channel;
	bool is_send;
	int after; /* sending: the operation that its steps need; -1 for none */
	int steps;
	struct plan_step *step;
};

struct plan_call {
	const char *function; /* as NCCL names it */
	int peer;             /* of a point-to-point call; -1 otherwise */
};

struct plan {
	int calls;
	struct plan_call call[2 * (MOST_RANKS - 1)];
	int ops;
	struct plan_op op[MOST_OPS];
	size_t data_bytes;  /* all that is sent from and received into */
	size_t received_at; /* where in it what was received begins */
};

void plan_make(struct plan *plan, const struct options *options);
