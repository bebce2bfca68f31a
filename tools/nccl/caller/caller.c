/* SPDX-License-Identifier: Apache-2.0 */
#include "caller.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OWN_ERRNO 77
#define FLOAT32   7

static _Thread_local long failed;

int caller_open(struct caller *caller, const char *library, int version)
{
	char name[32];
	snprintf(name, sizeof(name), "ncclProfiler_v%d", version);
	caller->version = version;
	caller->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	caller->found = caller->library ? dlsym(caller->library, name) : NULL;
	if (!caller->found)
		return 1;
	/* What follows `init` is laid out alike. */
	caller->start = caller->v1->start;
	caller->stop = caller->v1->stop;
	caller->state = caller->v1->state;
	caller->finalize = caller->v1->finalize;
	return 0;
}

void caller_close(struct caller *caller)
{
	dlclose(caller->library);
}

static void check(int result)
{
	failed += result || errno != OWN_ERRNO;
}

long caller_failed(void)
{
	long before = failed;
	failed = 0;
	return before;
}

void *caller_init(const struct caller *caller, const struct caller_comm *comm, int *mask)
{
	void *context = NULL;
	errno = OWN_ERRNO;
	if (caller->version < 4)
		check(caller->v1->init(&context, mask));
	else if (caller->version == 4)
		check(caller->v4->init(&context, mask, comm->name, comm->id, comm->nodes, comm->ranks,
				       comm->rank, NULL));
	else
		check(caller->v5->init(&context, comm->id, mask, comm->name, comm->nodes, comm->ranks,
				       comm->rank, NULL));
	return context;
}

static void *started(const struct caller *caller, void *context, const struct nccl_event *event)
{
	void *handle = NULL;
	errno = OWN_ERRNO;
	check(caller->start(context, &handle, event));
	return handle;
}

static void set_type(const struct caller *caller, struct nccl_event *event, uint64_t type)
{
	if (caller->version < 5)
		event->type = (uint8_t)type;
	else
		event->wide_type = type;
}

/* By the numbers of version 1. */
static uint8_t number_of(const char *function)
{
	static const char *const functions[] = {
		"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv",
	};
	const uint8_t count = sizeof(functions) / sizeof(functions[0]);
	for (uint8_t i = 0; i < count; i++)
		if (!strcmp(functions[i], function))
			return i;
	return count;
}

static void fill_coll(int version, struct nccl_event *event, const struct caller_call *call)
{
	if (version == 1)
		event->coll_v1 = (struct nccl_coll_v1){.comm_hash = call->comm_id,
						       .seq = call->seq,
						       .func = number_of(call->function),
						       .count = call->count,
						       .datatype = FLOAT32};
	else if (version < 4)
		event->coll_v2 = (struct nccl_coll_v2){.comm_hash = call->comm_id,
						       .seq = call->seq,
						       .func = call->function,
						       .count = call->count,
						       .datatype = "ncclFloat32"};
	else
		event->coll_v4 = (struct nccl_coll_v4){.seq = call->seq,
						       .func = call->function,
						       .count = call->count,
						       .datatype = "ncclFloat32"};
}

static void fill_p2p(int version, struct nccl_event *event, const struct caller_call *call)
{
	if (version == 1)
		event->p2p_v1 = (struct nccl_p2p_v1){.comm_hash = call->comm_id,
						     .func = number_of(call->function),
						     .count = call->count,
						     .datatype = FLOAT32,
						     .peer = call->peer};
	else if (version < 4)
		event->p2p_v2 = (struct nccl_p2p_v2){.comm_hash = call->comm_id,
						     .func = call->function,
						     .count = call->count,
						     .datatype = "ncclFloat32",
						     .peer = call->peer};
	else
		event->p2p_v4 = (struct nccl_p2p_v4){.func = call->function,
						     .count = call->count,
						     .datatype = "ncclFloat32",
						     .peer = call->peer};
}

void *caller_call(const struct caller *caller, void *context, const struct caller_call *call)
{
	struct nccl_event event = {.rank = call->rank};
	int is_p2p = !strcmp(call->function, "Send") || !strcmp(call->function, "Recv");
	set_type(caller, &event, is_p2p ? NCCL_P2P : NCCL_COLL);
	if (is_p2p)
		fill_p2p(caller->version, &event, call);
	else
		fill_coll(caller->version, &event, call);
	return started(caller, context, &event);
}

void *caller_op(const struct caller *caller, void *context, void *call, struct nccl_proxy_op op, int rank)
{
	struct nccl_event event = {.parent = call, .rank = rank, .proxy_op = op};
	set_type(caller, &event, NCCL_PROXY_OP);
	return started(caller, context, &event);
}

void *caller_step(const struct caller *caller, void *context, void *op, int step, int rank)
{
	struct nccl_event event = {.parent = op, .rank = rank, .proxy_step = {.step = step}};
	set_type(caller, &event, NCCL_PROXY_STEP);
	return started(caller, context, &event);
}

void caller_record(const struct caller *caller, void *step, int state, size_t bytes)
{
	struct nccl_state_args args = {.trans_size = bytes};
	if (!step)
		return;
	errno = OWN_ERRNO;
	check(caller->state(step, state, caller->version < 4 ? NULL : &args));
}

void caller_stop(const struct caller *caller, void *handle)
{
	if (!handle)
		return;
	errno = OWN_ERRNO;
	check(caller->stop(handle));
}
