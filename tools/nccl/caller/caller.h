/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's side of its profiler interface, by any version of it. */
#pragma once

#include "profiler.h"

#include <stdint.h>

#define CALLER_NEWEST 6

struct caller {
	int version;
	void *library;
	union {
		const void *found;
		const struct nccl_profiler_v1 *v1;
		const struct nccl_profiler_v4 *v4;
		const struct nccl_profiler_v5 *v5;
	};
	nccl_start_fn start;
	nccl_stop_fn stop;
	nccl_state_fn state;
	nccl_finalize_fn finalize;
};

/* A communicator, as NCCL names it. */
struct caller_comm {
	const char *name;
	uint64_t id;
	int nodes;
	int ranks;
	int rank;
};

/* A collective or a point-to-point call of float32. */
struct caller_call {
	const char *function; /* AllReduce, Send or Recv */
	uint64_t comm_id;
	uint64_t seq; /* a point-to-point call has none */
	size_t count;
	int peer; /* of a point-to-point call */
	int rank;
};

/* 0 where the library can be loaded and has that version. */
int caller_open(struct caller *caller, const char *library, int version);
void caller_close(struct caller *caller);

/* What the profiler gives back for a communicator. */
void *caller_init(const struct caller *caller, const struct caller_comm *comm, int *mask);

/* One event; the handle it was given. */
void *caller_call(const struct caller *caller, void *context, const struct caller_call *call);
void *caller_op(const struct caller *caller, void *context, void *call, struct nccl_proxy_op op, int rank);
void *caller_step(const struct caller *caller, void *context, void *op, int step, int rank);

/* Of a handle that is not NULL. */
void caller_record(const struct caller *caller, void *step, int state, size_t bytes);
void caller_stop(const struct caller *caller, void *handle);

/* How many calls of this thread since the last time have failed or changed errno. */
long caller_failed(void);
