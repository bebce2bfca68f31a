/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives and point-to-point calls, as each version of the interface tells them. */
#pragma once

#include "profiler.h"
#include "ring.h"

struct call {
	uint64_t comm_hash; /* 0: not said */
	uint64_t seq;       /* of a collective */
	uint64_t bytes;     /* its count, times its type's; 0 where that is not known */
	int peer;
	uint8_t function;
};

struct call call_v1(const struct nccl_event *event);
struct call call_v2(const struct nccl_event *event);
struct call call_v4(const struct nccl_event *event);
