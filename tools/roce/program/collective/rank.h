/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a collective: in each iteration it goes through its steps in order. A step waits for messages of
 * other ranks, computes, and posts messages; the iteration ends when all that the rank has posted is
 * acknowledged. A rank may stand still: it then takes no notice of what has come, though its queue pairs
 * acknowledge it. No I/O and no clock: the caller brings times in ns of CLOCK_MONOTONIC. */
#pragma once

#include "connection/requester.h"
#include "connection/responder.h"

/* One message that a step waits for. */
struct input {
	uint32_t flow;
	struct responder *responder;
};

/* One message that a step posts. */
struct output {
	uint32_t flow;
	struct requester *requester;
};

struct step {
	uint64_t compute_ns;
	uint64_t jitter_ns; /* the most that an iteration computes longer or shorter */
	struct input *inputs;
	size_t input_total;
	struct output *outputs;
	size_t output_total;

	/* Of this iteration; 0: not yet. */
	uint64_t ready_ns; /* its inputs were seen to be here */
	uint64_t begun_ns; /* it had computed, and posted its outputs */
};

struct rank {
	uint32_t id;
	uint64_t iterations; /* 0: until the end of the run */
	uint64_t seed;
	uint64_t stall_ns;       /* how long it stands still, 0: never */
	uint64_t stall_every_ns; /* at the end of each such time from its start on */
	struct step *steps;
	size_t step_total;

	uint64_t iteration;        /* the one under way, from 0 */
	uint64_t start_ns;         /* of this iteration; 0: not yet */
	uint64_t origin_ns;        /* of the first */
	uint64_t stalled_until_ns; /* 0: it does not stand still */
	size_t current;            /* the step that is next to begin */
	unsigned short random[3];
	double draw; /* of this iteration, from -1 to 1 */
};

/* Fills in what follows from the settings and has the queue pairs send what is posted only. The steps' queue
 * pairs are set. */
void rank_init(struct rank *rank);

/* Goes on as far as it can; returns true if that completed the iteration. */
bool rank_work(struct rank *rank, uint64_t now_ns);

/* Leaves a completed iteration behind. */
void rank_next(struct rank *rank);

/* Has it completed all its iterations? */
bool rank_done(const struct rank *rank);

/* When it has computed or stood still, UINT64_MAX while it waits for packets. */
uint64_t rank_timer_ns(const struct rank *rank);
