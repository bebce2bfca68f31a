/* SPDX-License-Identifier: Apache-2.0 */
/* Reliable queue pairs between this program and another, and RDMA WRITEs over them. */
#pragma once

#include "lib.h"

#include <stdint.h>

#define DEPTH      4 /* messages under way of each queue pair */
#define MOST_PAIRS 4096

/* What an end tells the other. */
struct end {
	uint32_t qpn, rkey;
	uint64_t address;
	union ibv_gid gid;
};

struct pair {
	struct ibv_qp *qp;
	struct end here, there;
	uint32_t under_way;
};

struct transfer {
	const char *device, *address;
	uint8_t gid_index;
	uint16_t port;
	uint64_t messages;
	uint32_t bytes, flow_label, count;
	struct ibv_cq *completions;
	struct ibv_mr *memory;
	struct pair pairs[MOST_PAIRS];
};

extern struct transfer transfer;

/* Says on standard output what failed, with errno, and ends the program. */
void fail(const char *what);

/* Opens the device and makes the queue pairs. */
void ends_make(void);

/* Takes a queue pair to RTS; the other end is known. */
void ends_connect(struct pair *pair);

/* Where it leads, with a flow label; 0 for the device's choice. */
struct ibv_ah_attr ends_path(const struct pair *pair, uint32_t flow_label);

void ends_post(uint32_t place);

/* Takes a message that is done, or waits a moment; how many were. Ends the program where one has failed. */
uint32_t ends_complete(void);
