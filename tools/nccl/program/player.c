/* SPDX-License-Identifier: Apache-2.0 */
#include "player.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define FAILED     1000000
#define OWN_ERRNO  77
#define PEER       1
#define COUNT      1000
#define ALL_REDUCE 4 /* by the numbers of version 1 */
#define SEND       6
#define FLOAT32    7

static _Thread_local long failed;

int player_open(struct player *player, const char *library, int version)
{
	char name[32];
	snprintf(name, sizeof(name), "ncclProfiler_v%d", version);
	player->version = version;
	player->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	player->found = player->library ? dlsym(player->library, name) : NULL;
	if (!player->found)
		return 1;
	*(void **)&player->posted = dlsym(player->library, "cwdp_nccl_posted");
	if (!player->posted)
		return 1;
	/* What follows `init` is laid out alike. */
	player->start = player->v1->start;
	player->stop = player->v1->stop;
	player->state = player->v1->state;
	player->finalize = player->v1->finalize;
	return 0;
}

void player_close(struct player *player)
{
	dlclose(player->library);
}

static void check(int result)
{
	if (result || errno != OWN_ERRNO)
		failed += FAILED;
}

void *player_init(const struct player *player, uint64_t id, int rank, int ranks, int *mask)
{
	void *context = NULL;
	errno = OWN_ERRNO;
	if (player->version < 4)
		check(player->v1->init(&context, mask));
	else if (player->version == 4)
		check(player->v4->init(&context, mask, "played", id, 2, ranks, rank, NULL));
	else
		check(player->v5->init(&context, id, mask, "played", 2, ranks, rank, NULL));
	return context;
}

static void *started(const struct player *player, void *context, const struct nccl_event *event)
{
	void *handle = NULL;
	errno = OWN_ERRNO;
	check(player->start(context, &handle, event));
	failed += !handle;
	return handle;
}

static void set_type(const struct player *player, struct nccl_event *event, uint64_t type)
{
	if (player->version < 5)
		event->type = (uint8_t)type;
	else
		event->wide_type = type;
}

static void fill_coll(int version, struct nccl_event *event, uint64_t seq)
{
	if (version == 1)
		event->coll_v1 = (struct nccl_coll_v1){.comm_hash = 0x11,
						       .seq = seq,
						       .func = ALL_REDUCE,
						       .count = COUNT,
						       .datatype = FLOAT32};
	else if (version < 4)
		event->coll_v2 = (struct nccl_coll_v2){.comm_hash = 0x11,
						       .seq = seq,
						       .func = "AllReduce",
						       .count = COUNT,
						       .datatype = "ncclFloat32"};
	else
		event->coll_v4 = (struct nccl_coll_v4){
			.seq = seq, .func = "AllReduce", .count = COUNT, .datatype = "ncclFloat32"};
}

static void fill_p2p(int version, struct nccl_event *event)
{
	if (version == 1)
		event->p2p_v1 = (struct nccl_p2p_v1){
			.comm_hash = 0x11, .func = SEND, .count = COUNT, .datatype = FLOAT32, .peer = PEER};
	else if (version < 4)
		event->p2p_v2 = (struct nccl_p2p_v2){.comm_hash = 0x11,
						     .func = "Send",
						     .count = COUNT,
						     .datatype = "ncclFloat32",
						     .peer = PEER};
	else
		event->p2p_v4 = (struct nccl_p2p_v4){
			.func = "Send", .count = COUNT, .datatype = "ncclFloat32", .peer = PEER};
}

void *player_task(const struct player *player, void *context, uint64_t seq, int is_p2p)
{
	struct nccl_event event = {.rank = 3};
	set_type(player, &event, is_p2p ? NCCL_P2P : NCCL_COLL);
	if (is_p2p)
		fill_p2p(player->version, &event);
	else
		fill_coll(player->version, &event, seq);
	return started(player, context, &event);
}

void *player_op(const struct player *player, void *context, void *task, int pid, int channel, int is_send)
{
	struct nccl_event event = {.parent = task, .rank = 3};
	set_type(player, &event, NCCL_PROXY_OP);
	event.proxy_op = (struct nccl_proxy_op){.pid = pid,
						.channel = (uint8_t)channel,
						.peer = PEER,
						.steps = 8,
						.chunk_bytes = PLAYED_BYTES,
						.is_send = is_send};
	return started(player, context, &event);
}

void *player_step(const struct player *player, void *context, void *op, int step)
{
	struct nccl_event event = {.parent = op, .rank = 3};
	set_type(player, &event, NCCL_PROXY_STEP);
	event.proxy_step.step = step;
	return started(player, context, &event);
}

static void record(const struct player *player, void *step, int state, size_t bytes)
{
	struct nccl_state_args args = {.trans_size = bytes};
	errno = OWN_ERRNO;
	check(player->state(step, state, player->version < 4 ? NULL : &args));
}

static void stop(const struct player *player, void *handle)
{
	if (!handle)
		return;
	errno = OWN_ERRNO;
	check(player->stop(handle));
}

/* A peer that is not clear to take it is asked again and again, with posts for others between. At last there
 * are two work requests, data and immediate.
 */
void player_send_states(const struct player *player, void *step, int gpu_us)
{
	record(player, step, NCCL_SEND_GPU_WAIT, 0);
	if (gpu_us)
		usleep((useconds_t)gpu_us);
	for (int i = 0; player->version >= 4 && i < 3; i++) {
		player->posted(PLAYED_QPN + 1, 1, 64, 1);
		record(player, step, NCCL_SEND_PEER_WAIT, 0);
	}
	player->posted(PLAYED_QPN, 3, PLAYED_BYTES, 2);
	record(player, step, NCCL_SEND_WAIT, PLAYED_BYTES);
	player->posted(PLAYED_QPN + 1, 4, 64, 1);
}

void player_recv_states(const struct player *player, void *step)
{
	record(player, step, NCCL_RECV_WAIT, 0);
	record(player, step, NCCL_RECV_FLUSH_WAIT, PLAYED_BYTES);
	record(player, step, NCCL_RECV_GPU_WAIT, PLAYED_BYTES);
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
		stop(player, step);
	}
	stop(player, op);
}

long player_play(const struct player *player, void *context, struct piece piece)
{
	failed = 0;
	for (int i = 0; i < piece.calls; i++) {
		void *task = player_task(player, context, piece.first_seq + (uint64_t)i, piece.is_p2p);
		stop(player, task);
		for (int op = 0; op < piece.ops; op++)
			play_op(player, context, task, op, &piece);
	}
	return failed;
}
