/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <dlfcn.h>
#include <unistd.h>

#define FAILED  1000000
#define COMM_ID 0x11
#define PEER    1
#define RANK    3
#define COUNT   1000

static _Thread_local long without_handle;

int player_open(struct player *player, const char *library, int version)
{
	if (caller_open(&player->nccl, library, version))
		return 1;
	*(void **)&player->posted = dlsym(player->nccl.library, "cwdp_nccl_posted");
	return !player->posted;
}

void *player_init(const struct player *player, uint64_t id, int rank, int ranks, int *mask)
{
	struct caller_comm comm = {.name = "played", .id = id, .nodes = 2, .ranks = ranks, .rank = rank};
	return caller_init(&player->nccl, &comm, mask);
}

static void *noted(void *handle)
{
	without_handle += !handle;
	return handle;
}

void *player_task(const struct player *player, void *context, uint64_t seq, int is_p2p)
{
	struct caller_call call = {.function = is_p2p ? "Send" : "AllReduce",
				   .comm_id = COMM_ID,
				   .seq = seq,
				   .count = COUNT,
				   .peer = PEER,
				   .rank = RANK};
	return noted(caller_call(&player->nccl, context, &call));
}

void *player_op(const struct player *player, void *context, void *task, int pid, int channel, int is_send)
{
	struct nccl_proxy_op op = {.pid = pid,
				   .channel = (uint8_t)channel,
				   .peer = PEER,
				   .steps = 8,
				   .chunk_bytes = PLAYED_BYTES,
				   .is_send = is_send};
	return noted(caller_op(&player->nccl, context, task, op, RANK));
}

void *player_step(const struct player *player, void *context, void *op, int step)
{
	return noted(caller_step(&player->nccl, context, op, step, RANK));
}

/* A peer that is not clear to take it is asked again and again, with posts for others between. At last there
 * are two work requests, data and immediate.
 */
void player_send_states(const struct player *player, void *step, int gpu_us)
{
	const struct caller *nccl = &player->nccl;
	caller_record(nccl, step, NCCL_SEND_GPU_WAIT, 0);
	if (gpu_us)
		usleep((useconds_t)gpu_us);
	for (int i = 0; nccl->version >= 4 && i < 3; i++) {
		player->posted(PLAYED_QPN + 1, 1, 64, 1);
		caller_record(nccl, step, NCCL_SEND_PEER_WAIT, 0);
	}
	player->posted(PLAYED_QPN, 3, PLAYED_BYTES, 2);
	caller_record(nccl, step, NCCL_SEND_WAIT, PLAYED_BYTES);
	player->posted(PLAYED_QPN + 1, 4, 64, 1);
}

void player_recv_states(const struct player *player, void *step)
{
	caller_record(&player->nccl, step, NCCL_RECV_WAIT, 0);
	caller_record(&player->nccl, step, NCCL_RECV_FLUSH_WAIT, PLAYED_BYTES);
	caller_record(&player->nccl, step, NCCL_RECV_GPU_WAIT, PLAYED_BYTES);
}

static void play_op(const struct player *player, void *context, void *task, int channel,
		    const struct piece *piece)
{
	int is_send = channel % 2 == 0;
	void *op = player_op(player, context, task, getpid(), channel, is_send);
	for (int i = 0; i < piece->steps; i++) {
		void *step = player_step(player, context, op, i);
		if (step && is_send)
			player_send_states(player, step, i ? 0 : piece->gpu_us);
		else if (step)
			player_recv_states(player, step);
		caller_stop(&player->nccl, step);
	}
	caller_stop(&player->nccl, op);
}

long player_play(const struct player *player, void *context, struct piece piece)
{
	without_handle = 0;
	caller_failed();
	for (int i = 0; i < piece.calls; i++) {
		void *task = player_task(player, context, piece.first_seq + (uint64_t)i, piece.is_p2p);
		caller_stop(&player->nccl, task);
		for (int op = 0; op < piece.ops; op++)
			play_op(player, context, task, op, &piece);
	}
	return without_handle + FAILED * caller_failed();
}
