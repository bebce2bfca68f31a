/* SPDX-License-Identifier: Apache-2.0 */
/* A job as NCCL's proxy thread sees it, with the profiler and without. */
#pragma once

#include "player.h"

/* How a job runs. */
struct job {
	int calls;
	int steps;           /* of each call: chunks */
	uint64_t wire_ns;    /* so long the NIC takes for a chunk */
	uint64_t compute_ns; /* between two calls */
	int is_told;         /* whether the profiler is */
};

uint64_t now_ns(void);

/* How long it took, in ns. */
uint64_t job_run(const struct player *player, void *context, const struct job *job);
