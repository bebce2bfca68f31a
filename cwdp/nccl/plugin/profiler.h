/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's profiler interface, versions 1 to 6, as far as it is read here: RCCL has the same. The layouts are
 * those of NCCL 2.30.7 on 64-bit Linux. What stands behind the last field that is read is left out.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Kinds of events: bits of the mask that `init` gives back. */
#define NCCL_COLL       (1u << 1)
#define NCCL_P2P        (1u << 2)
#define NCCL_PROXY_OP   (1u << 3)
#define NCCL_PROXY_STEP (1u << 4)

enum nccl_state {
	NCCL_SEND_GPU_WAIT = 8,
	NCCL_SEND_WAIT = 9,
	NCCL_RECV_WAIT = 10,
	NCCL_RECV_FLUSH_WAIT = 11,
	NCCL_RECV_GPU_WAIT = 12,
	NCCL_SEND_PEER_WAIT = 20, /* since version 4 */
};

/* A collective or a point-to-point call, by what versions have changed. */
struct nccl_coll_v1 {
	const char *name;
	uint64_t comm_hash;
	uint64_t seq;
	uint8_t func;
	const void *send;
	void *recv;
	size_t count;
	int root;
	uint8_t datatype;
};

struct nccl_coll_v2 {
	const char *name;
	uint64_t comm_hash;
	uint64_t seq;
	const char *func;
	const void *send;
	void *recv;
	size_t count;
	int root;
	const char *datatype;
};

struct nccl_coll_v4 {
	uint64_t seq;
	const char *func;
	const void *send;
	void *recv;
	size_t count;
	int root;
	const char *datatype;
};

struct nccl_p2p_v1 {
	const char *name;
	uint64_t comm_hash;
	uint8_t func;
	void *buffer;
	uint8_t datatype;
	size_t count;
	int peer;
};

struct nccl_p2p_v2 {
	const char *name;
	uint64_t comm_hash;
	const char *func;
	void *buffer;
	const char *datatype;
	size_t count;
	int peer;
};

struct nccl_p2p_v4 {
	const char *func;
	void *buffer;
	const char *datatype;
	size_t count;
	int peer;
};

struct nccl_proxy_op {
	int pid;
	uint8_t channel;
	int peer;
	int steps;
	int chunk_bytes;
	int is_send;
};

struct nccl_proxy_step {
	int step;
};

struct nccl_event {
	union {
		uint8_t type;
		uint64_t wide_type; /* since version 5 */
	};
	void *parent;
	int rank;
	union {
		struct nccl_coll_v1 coll_v1;
		struct nccl_coll_v2 coll_v2;
		struct nccl_coll_v4 coll_v4;
		struct nccl_p2p_v1 p2p_v1;
		struct nccl_p2p_v2 p2p_v2;
		struct nccl_p2p_v4 p2p_v4;
		struct nccl_proxy_op proxy_op;
		struct nccl_proxy_step proxy_step;
	};
};

/* Up to version 3 it is of a proxy operation, since version 4 of a step. */
struct nccl_state_args {
	size_t trans_size;
};

typedef int (*nccl_start_fn)(void *context, void **handle, const struct nccl_event *event);
typedef int (*nccl_stop_fn)(void *handle);
typedef int (*nccl_state_fn)(void *handle, int state, const struct nccl_state_args *args);
typedef int (*nccl_finalize_fn)(void *context);

struct nccl_profiler_v1 {
	const char *name;
	int (*init)(void **context, int *mask);
	nccl_start_fn start;
	nccl_stop_fn stop;
	nccl_state_fn state;
	nccl_finalize_fn finalize;
};

struct nccl_profiler_v4 {
	const char *name;
	int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int nodes,
		    int ranks, int rank, void *log);
	nccl_start_fn start;
	nccl_stop_fn stop;
	nccl_state_fn state;
	nccl_finalize_fn finalize;
};

struct nccl_profiler_v5 {
	const char *name;
	int (*init)(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nodes, int ranks,
		    int rank, void *log);
	nccl_start_fn start;
	nccl_stop_fn stop;
	nccl_state_fn state;
	nccl_finalize_fn finalize;
};

#define AT(field, offset) _Static_assert(offsetof(struct nccl_event, field) == (offset), #field)
AT(type, 0);
AT(wide_type, 0);
AT(parent, 8);
AT(rank, 16);
AT(coll_v1.comm_hash, 32);
AT(coll_v1.seq, 40);
AT(coll_v1.func, 48);
AT(coll_v1.count, 72);
AT(coll_v1.root, 80);
AT(coll_v1.datatype, 84);
AT(coll_v2.comm_hash, 32);
AT(coll_v2.seq, 40);
AT(coll_v2.func, 48);
AT(coll_v2.count, 72);
AT(coll_v2.root, 80);
AT(coll_v2.datatype, 88);
AT(coll_v4.seq, 24);
AT(coll_v4.func, 32);
AT(coll_v4.count, 56);
AT(coll_v4.root, 64);
AT(coll_v4.datatype, 72);
AT(p2p_v1.comm_hash, 32);
AT(p2p_v1.func, 40);
AT(p2p_v1.datatype, 56);
AT(p2p_v1.count, 64);
AT(p2p_v1.peer, 72);
AT(p2p_v2.comm_hash, 32);
AT(p2p_v2.func, 40);
AT(p2p_v2.datatype, 56);
AT(p2p_v2.count, 64);
AT(p2p_v2.peer, 72);
AT(p2p_v4.func, 24);
AT(p2p_v4.datatype, 40);
AT(p2p_v4.count, 48);
AT(p2p_v4.peer, 56);
AT(proxy_op.pid, 24);
AT(proxy_op.channel, 28);
AT(proxy_op.peer, 32);
AT(proxy_op.steps, 36);
AT(proxy_op.chunk_bytes, 40);
AT(proxy_op.is_send, 44);
AT(proxy_step.step, 24);
#undef AT
_Static_assert(sizeof(void *) == 8 && sizeof(struct nccl_profiler_v5) == 48, "64 bits");
