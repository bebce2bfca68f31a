/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's calls of a profiler, in the order in which NCCL makes them. */
#pragma once

#include "caller.h"

#define PLAYED_BYTES 4096 /* of each step */
#define PLAYED_QPN   17

struct player {
	struct caller nccl;
	void (*posted)(uint32_t qpn, uint64_t last_wr_id, uint64_t bytes, uint32_t requests);
};

/* What is played: calls, each with so many operations, one a channel, each with so many steps. */
struct piece {
	int calls;
	int ops;
	int steps;
	int is_p2p;
	int gpu_us; /* how long its GPU is not ready, once in each operation that sends */
	uint64_t first_seq;
};

/* 0 where the library has that version. */
int player_open(struct player *player, const char *library, int version);

/* What the plug-in gives back for a communicator. */
void *player_init(const struct player *player, uint64_t id, int rank, int ranks, int *mask);

/* One event; the handle it was given. */
void *player_task(const struct player *player, void *context, uint64_t seq, int is_p2p);
void *player_op(const struct player *player, void *context, void *task, int pid, int channel, int is_send);
void *player_step(const struct player *player, void *context, void *op, int step);
void player_send_states(const struct player *player, void *step, int gpu_us);
void player_recv_states(const struct player *player, void *step);

/* Plays; how many handles were NULL, and 1000000 more for each call that failed or changed errno. */
long player_play(const struct player *player, void *context, struct piece piece);
