/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be done, as the command line says. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MOST_RANKS    32
#define MOST_CHANNELS 8
#define MOST_QPS      16

enum function {
	ALL_REDUCE,
	ALL_TO_ALL,
	SEND, /* each even rank to the next one */
};

struct options {
	int rank, ranks;
	const char *host; /* where the ranks meet: rank 0 listens there */
	int port;
	const char *device;
	int gid_index;
	enum function function;
	int bytes; /* of an all-reduce's buffer; to each peer otherwise */
	int chunk_bytes;
	int iterations;
	int channels;
	int qps;                      /* of each connection, as NCCL_IB_QPS_PER_CONNECTION */
	bool is_split;                /* each chunk over all of them, as NCCL_IB_SPLIT_DATA_ON_QPS */
	bool is_adaptive;             /* large chunks by two work requests, as NCCL_IB_ADAPTIVE_ROUTING */
	int compute_ms;               /* how long the GPU is not ready in each iteration */
	int slow_rank;                /* -1: none */
	int slow_percent;             /* how much longer its GPU takes */
	int stall_rank;               /* -1: none; for a while it receives nothing, again and again */
	int stall_ms, stall_every_ms; /* how long, from one beginning to the next */
	int timeout_s;                /* for the ranks to meet, and for anything to happen */
	int profiler_version;         /* 0: the newest that the plug-in has */
};

/* Ends the program with status 2 where they are wrong, with 0 where the user asked what there is. */
struct options options_read(int argc, char **argv);

/* The same on all ranks that may work together. */
uint64_t options_hash(const struct options *options);
