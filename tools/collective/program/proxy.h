/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's proxy thread, which hands chunks to the network and takes them from it, all operations in turn
 * (src/transport/net.cc), and tells the profiler of it.
 */
#pragma once

#include "caller.h"
#include "plan.h"

struct profiled {
	const struct caller *nccl; /* NULL without a plug-in */
	void *context;
	unsigned mask; /* the events that the plug-in asks for */
};

/* A call as NCCL's main thread has enqueued it. */
struct call {
	void *handle;
	uint64_t seq;
	uint64_t enqueued_ns, end_ns;
	int ops_left;
};

/* Makes and connects what the plan needs; `data` is of its size. Ends the program where it cannot. */
void proxy_connect(const struct options *options, const struct plan *plan, const struct profiled *profiled,
		   float *data);

/* Goes through all operations of an iteration, and tells each chunk that was sent. The GPU is ready at a
 * time. */
void proxy_run(struct call *calls, uint64_t gpu_ready_ns);
