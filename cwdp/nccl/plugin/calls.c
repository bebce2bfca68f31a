/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

#include <string.h>

/* By enum cwdp_nccl_function. */
static const char *const functions[CWDP_NCCL_FUNCTIONS] = {
	"",     "AllGather", "AllReduce",     "AlltoAll", "Broadcast", "Gather",
	"Recv", "Reduce",    "ReduceScatter", "Scatter",  "Send",      "SendRecv",
};

/* By the numbers of version 1. */
static const uint8_t functions_v1[] = {
	CWDP_NCCL_BROADCAST,  CWDP_NCCL_REDUCE,    CWDP_NCCL_ALL_GATHER, CWDP_NCCL_REDUCE_SCATTER,
	CWDP_NCCL_ALL_REDUCE, CWDP_NCCL_SEND_RECV, CWDP_NCCL_SEND,       CWDP_NCCL_RECV,
};
static const uint8_t bytes_v1[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static uint8_t function_of(const char *name)
{
	for (uint8_t i = 1; name && i < CWDP_NCCL_FUNCTIONS; i++)
		if (!strcmp(name, functions[i]))
			return i;
	return CWDP_NCCL_OTHER;
}

/* Of one element; 0 where its type is not known. */
static uint64_t bytes_of(const char *datatype)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} types[] = {
		{"ncclInt8", 1},    {"ncclUint8", 1},    {"ncclInt32", 4},      {"ncclUint32", 4},
		{"ncclInt64", 8},   {"ncclUint64", 8},   {"ncclFloat16", 2},    {"ncclFloat32", 4},
		{"ncclFloat64", 8}, {"ncclBfloat16", 2}, {"ncclFloat8e4m3", 1}, {"ncclFloat8e5m2", 1},
	};
	for (size_t i = 0; datatype && i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(datatype, types[i].name))
			return types[i].bytes;
	return 0;
}

static uint8_t function_of_v1(uint8_t number)
{
	return number < sizeof(functions_v1) ? functions_v1[number] : CWDP_NCCL_OTHER;
}

static uint64_t bytes_of_v1(uint8_t datatype)
{
	return datatype < sizeof(bytes_v1) ? bytes_v1[datatype] : 0;
}

struct call call_v1(const struct nccl_event *event)
{
	if (event->type == NCCL_COLL)
		return (struct call){
			.comm_hash = event->coll_v1.comm_hash,
			.seq = event->coll_v1.seq,
			.bytes = event->coll_v1.count * bytes_of_v1(event->coll_v1.datatype),
			.peer = event->coll_v1.root,
			.function = function_of_v1(event->coll_v1.func),
		};
	return (struct call){
		.comm_hash = event->p2p_v1.comm_hash,
		.bytes = event->p2p_v1.count * bytes_of_v1(event->p2p_v1.datatype),
		.peer = event->p2p_v1.peer,
		.function = function_of_v1(event->p2p_v1.func),
	};
}

struct call call_v2(const struct nccl_event *event)
{
	if (event->type == NCCL_COLL)
		return (struct call){
			.comm_hash = event->coll_v2.comm_hash,
			.seq = event->coll_v2.seq,
			.bytes = event->coll_v2.count * bytes_of(event->coll_v2.datatype),
			.peer = event->coll_v2.root,
			.function = function_of(event->coll_v2.func),
		};
	return (struct call){
		.comm_hash = event->p2p_v2.comm_hash,
		.bytes = event->p2p_v2.count * bytes_of(event->p2p_v2.datatype),
		.peer = event->p2p_v2.peer,
		.function = function_of(event->p2p_v2.func),
	};
}

struct call call_v4(const struct nccl_event *event)
{
	if (event->type == NCCL_COLL)
		return (struct call){
			.seq = event->coll_v4.seq,
			.bytes = event->coll_v4.count * bytes_of(event->coll_v4.datatype),
			.peer = event->coll_v4.root,
			.function = function_of(event->coll_v4.func),
		};
	return (struct call){
		.bytes = event->p2p_v4.count * bytes_of(event->p2p_v4.datatype),
		.peer = event->p2p_v4.peer,
		.function = function_of(event->p2p_v4.func),
	};
}
