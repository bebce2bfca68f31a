/* SPDX-License-Identifier: Apache-2.0 */
/* The ring by which a program's events reach the agent, in a memfd that both map, and the message that passes
 * it over. Many threads of the program write, the agent alone reads. cwdp/nccl/ring.py has the same in
 * Python; a test holds the two together. Host byte order. A change of meaning raises CWDP_NCCL_VERSION.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define CWDP_NCCL_SOCKET     "/run/cwdp-verbs/nccl.sock"
#define CWDP_NCCL_MAGIC      0x6e765743u
#define CWDP_NCCL_VERSION    1
#define CWDP_NCCL_COMMS      1024
#define CWDP_NCCL_RECORDS    32768
#define CWDP_NCCL_NAME_BYTES 40
#define CWDP_NCCL_JOB_BYTES  64
#define CWDP_NCCL_WAITS      5
#define CWDP_NCCL_NO_COMM    UINT16_MAX

enum cwdp_nccl_kind {
	CWDP_NCCL_CALL = 1, /* a collective or a point-to-point call was enqueued */
	CWDP_NCCL_OP_BEGIN, /* one channel of it begins with one peer */
	CWDP_NCCL_OP_END,
	CWDP_NCCL_STEP, /* a chunk of that, told when it is done */
};

/* What a step waited for, one after the other. */
enum cwdp_nccl_wait {
	CWDP_NCCL_WAIT_POST, /* for a buffer */
	CWDP_NCCL_WAIT_GPU,  /* for its own GPU: to give the data, or to take it. Up to version 3 for the peer
				too. */
	CWDP_NCCL_WAIT_PEER, /* sending: for the peer to be clear to take it */
	CWDP_NCCL_WAIT_WIRE, /* sending: until it is sent; receiving: until it is there */
	CWDP_NCCL_WAIT_FLUSH, /* receiving: until it is in the GPU's memory */
};

/* `functions` in calls.c names them. */
enum cwdp_nccl_function {
	CWDP_NCCL_OTHER,
	CWDP_NCCL_ALL_GATHER,
	CWDP_NCCL_ALL_REDUCE,
	CWDP_NCCL_ALL_TO_ALL,
	CWDP_NCCL_BROADCAST,
	CWDP_NCCL_GATHER,
	CWDP_NCCL_RECV,
	CWDP_NCCL_REDUCE,
	CWDP_NCCL_REDUCE_SCATTER,
	CWDP_NCCL_SCATTER,
	CWDP_NCCL_SEND,
	CWDP_NCCL_SEND_RECV,
	CWDP_NCCL_FUNCTIONS,
};

/* Times are CLOCK_MONOTONIC. */
struct cwdp_nccl_record {
	_Atomic uint64_t place; /* its number in the ring and 1, once it is whole */
	uint64_t begin_ns;
	uint64_t lasted_ns;
	uint64_t seq; /* of the call, by communicator and function */
	uint64_t bytes;
	uint64_t wait_ns[CWDP_NCCL_WAITS];
	uint16_t comm; /* its place in `comms`, or CWDP_NCCL_NO_COMM */
	uint8_t kind;
	uint8_t function;
	uint8_t channel;
	uint8_t is_send;
	uint16_t reserved;
	int32_t peer; /* a rank of the communicator; of a call its root */
	int32_t step;
	int32_t pid; /* whose call it is: not the ring's where another process has it sent (PXN) */
	uint32_t qpn;
	uint64_t wr_id;
	uint32_t posted_bytes;
	uint32_t posts; /* how many work requests were posted for it; qpn and wr_id are of the last */
	uint64_t spare;
};
_Static_assert(sizeof(struct cwdp_nccl_record) == 128, "two cache lines");

struct cwdp_nccl_comm {
	_Atomic uint64_t id;
	_Atomic int32_t rank;
	int32_t ranks; /* 0: not known, as up to version 3 */
	int32_t nodes;
	_Atomic uint32_t used;
	char name[CWDP_NCCL_NAME_BYTES];
};
_Static_assert(sizeof(struct cwdp_nccl_comm) == 64, "a cache line");

/* `head` is the number of records that were begun, `tail` of those that the agent has read. */
struct cwdp_nccl_ring {
	uint32_t magic;
	uint32_t version;
	uint32_t comms;
	uint32_t records;
	int32_t pid;
	uint32_t reserved;
	char job[CWDP_NCCL_JOB_BYTES]; /* a variable of its environment that names its job, NAME=VALUE */
	_Alignas(128) _Atomic uint64_t head;
	_Alignas(128) _Atomic uint64_t tail;
	_Alignas(128) _Atomic uint64_t dropped; /* records, as the ring was full */
	_Atomic uint64_t no_slot; /* events that were not followed, as too many were under way */
	_Atomic uint64_t no_comm; /* communicators that had no place */
	_Atomic uint64_t stale;   /* calls with a handle that is none any more */
	_Alignas(4096) struct cwdp_nccl_comm comm[CWDP_NCCL_COMMS];
	struct cwdp_nccl_record record[CWDP_NCCL_RECORDS];
};
_Static_assert(offsetof(struct cwdp_nccl_ring, head) == 128, "head");
_Static_assert(offsetof(struct cwdp_nccl_ring, tail) == 256, "tail");
_Static_assert(offsetof(struct cwdp_nccl_ring, dropped) == 384, "dropped");
_Static_assert(offsetof(struct cwdp_nccl_ring, comm) == 4096, "comm");
_Static_assert(offsetof(struct cwdp_nccl_ring, record) == 4096 + 64 * CWDP_NCCL_COMMS, "record");

/* What a program says once to an agent, with the memfd. */
struct cwdp_nccl_hello {
	uint32_t magic;
	uint32_t version;
};
