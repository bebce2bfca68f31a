/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs by number, and what is done with them. */
#pragma once

#include "lib.h"

#include <stdbool.h>

#define MOST_CONTEXTS 64
#define MOST_PAIRS    (1 << 17)

/* With what a queue pair is modified. */
struct change {
	enum ibv_qp_state state;
	uint8_t dgid[16];
	uint32_t flow_label;
	uint32_t dest_qpn;
	uint8_t port;
	uint8_t sgid_index;
	uint16_t dlid;
	uint8_t src_path_bits;
	uint16_t alternate; /* DLID of an alternate path; 0 for none */
	bool with_state;
	bool with_path;
	bool is_global;
};

/* Contexts and queue pairs have places, which are used again. errno is left as the call left it. */
struct ibv_context *context_at(int place);
int context_open(const char *device);
int context_close(int place);
struct ibv_qp *pair_at(int place);
int pair_create(int context, enum ibv_qp_type type, uint32_t send_wrs);
int pair_destroy(int place);

/* Out of memory that cannot be written to. */
int pair_modify(int place, const struct change *change);

/* From INIT on to RTS. */
int pair_connect(int place, const uint8_t dgid[16]);
