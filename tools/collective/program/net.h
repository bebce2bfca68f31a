/* SPDX-License-Identifier: Apache-2.0 */
/* Connections one way by RC queue pairs, as NCCL has them (src/transport/net_ib.cc): the receiver clears the
 * sender to send by an inline RDMA WRITE into the sender's memory, and is written to by RDMA WRITE with
 * immediate data. One thread at a time.
 */
#pragma once

#include "options.h"

#include <infiniband/verbs.h>

#define STEPS 8 /* under way at once: NCCL_STEPS */

/* What an end tells the other. */
struct end {
	union ibv_gid gid;
	uint64_t address; /* the sender's: of its places for what it is cleared for */
	uint32_t rkey;
	uint32_t psn;
	uint32_t qpn[MOST_QPS];
};

/* What is cleared, as the receiver writes it. `number` is behind the rest, which is there before it. */
struct clear {
	uint64_t address;
	uint64_t bytes;
	uint64_t rkey;
	_Atomic uint64_t number;
};

/* A chunk that is sent or received. */
struct request {
	bool is_done;
	int left;     /* completions to come */
	uint32_t qpn; /* the last work request's */
	uint64_t wr_id;
	uint32_t work_requests;
	uint64_t posted_ns, done_ns;
};

struct connection {
	int peer, channel;
	bool is_send;
	struct ibv_qp *qp[MOST_QPS];
	struct ibv_mr *data, *clears;
	char *slot[STEPS];   /* memory of each chunk under way */
	struct clear *clear; /* STEPS of them: written by the peer, or to be written to it */
	struct request request[STEPS];
	uint64_t begun; /* chunks, of which number i has slot i % STEPS */
	uint32_t next_qp;
	struct end here, there;
};

/* Opens the device. Ends the program where it cannot, as all of these do. */
void net_open(const struct options *options);

/* A connection that is to be connected, with `here` made. */
struct connection *net_make(int peer, int channel, bool is_send);

/* Takes its queue pairs to RTS; `there` is known. */
void net_connect(struct connection *connection);

/* Sends what is in the next slot; NULL where the peer is not clear to take it. */
struct request *net_send(struct connection *connection, size_t bytes);

/* Takes a chunk into the next slot. */
struct request *net_receive(struct connection *connection);

/* Sees what is done. */
void net_poll(void);

/* Ends all queue pairs. */
void net_close(void);
