/* SPDX-License-Identifier: Apache-2.0 */
/* Plays NCCL to a profiler, as it is told by its standard input, and answers each line with one.
 *
 * PROGRAM LIBRARY VERSION
 */
#include "job.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_THREADS 16
#define TIMED_STEPS  64

static struct player player;
static void *context;

struct part {
	struct piece piece;
	long failed;
};

static void say(const char *what, long number)
{
	printf("%s %ld\n", what, number);
	fflush(stdout);
}

static void init(long id, int rank)
{
	int mask = -1;
	context = player_init(&player, (uint64_t)id, rank, 8, &mask);
	say("mask", mask);
}

static void *play_part(void *of)
{
	struct part *part = of;
	part->failed = player_play(&player, context, part->piece);
	return NULL;
}

static void threads(int number, struct piece piece)
{
	pthread_t thread[MOST_THREADS];
	struct part part[MOST_THREADS];
	long failed = 0;
	for (int i = 0; i < number; i++) {
		part[i] = (struct part){.piece = piece};
		part[i].piece.first_seq = (uint64_t)(i * piece.calls);
		pthread_create(&thread[i], NULL, play_part, &part[i]);
	}
	for (int i = 0; i < number; i++) {
		pthread_join(thread[i], NULL);
		failed += part[i].failed;
	}
	say("failed", failed);
}

/* The child plays in its parent's communicator, of which nothing may come, and then in one of its own. */
static void in_child(void)
{
	int status = -1;
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		struct piece piece = {.calls = 1, .ops = 1, .steps = 1};
		int mask = 0;
		player_play(&player, context, piece);
		context = player_init(&player, 0x22, 4, 8, &mask);
		long failed = player_play(&player, context, piece);
		sleep(1);
		_exit(mask == 30 && !failed ? 0 : 1);
	}
	waitpid(child, &status, 0);
	say("child", status);
}

static void hold(int number)
{
	long none = 0;
	void *task = player_task(&player, context, 0, 0);
	for (int i = 0; i < number; i++)
		none += !player_op(&player, context, task, getpid(), 0, 1);
	say("none", none);
}

static void wrong(void)
{
	void *handle = NULL;
	struct nccl_event event = {0};
	long failed = player.nccl.start(context, NULL, &event) + player.nccl.start(context, &handle, NULL);
	failed += player.nccl.start(NULL, &handle, &event) + player.nccl.start((void *)-1, &handle, &event);
	failed += player.nccl.stop(NULL) + player.nccl.stop((void *)-1) +
		  player.nccl.stop((void *)0x2000000100000001);
	failed += player.nccl.state(NULL, 9, NULL) + player.nccl.state((void *)0x2fffffffffffffff, -5, NULL);
	void *op = player_op(&player, context, (void *)0x7fff12345678, getpid(), 0, 1);
	void *step = player_step(&player, context, op, 0);
	failed += player.nccl.state(step, -1, NULL) + player.nccl.state(step, 1 << 30, NULL);
	failed += player.nccl.state(step, NCCL_SEND_WAIT, NULL) + player.nccl.stop(step) +
		  player.nccl.stop(step);
	failed += player.nccl.stop(op) + player.nccl.stop(op) + player.nccl.finalize(NULL) +
		  player.nccl.finalize((void *)-1);
	void *late = player_step(&player, context, op, 1);
	failed += player.nccl.stop(late);
	say("failed", failed);
}

/* An operation that another process has sent: its call's handle and context are that one's. */
static void foreign(int pid, void *task)
{
	void *op = player_op(&player, (void *)700, task, pid, 0, 1);
	void *step = player_step(&player, (void *)700, op, 0);
	player_send_states(&player, step, 0);
	say("failed", player.nccl.stop(step) + player.nccl.stop(op));
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* Callbacks of steps in sending, each timed by itself, less what it takes to read the clock. */
static void timed(int steps)
{
	size_t number = 0, most = (size_t)steps * 5;
	uint64_t *took = malloc(most * sizeof(*took)), *empty = malloc(most * sizeof(*empty));
	struct nccl_state_args args = {.trans_size = PLAYED_BYTES};
	struct nccl_event event = {.rank = 3};
	void *task = player_task(&player, context, 0, 0), *op = NULL, *step = NULL;
	if (player.nccl.version < 5)
		event.type = NCCL_PROXY_STEP;
	else
		event.wide_type = NCCL_PROXY_STEP;
	for (int i = 0; i < steps; i++) {
		if (i % TIMED_STEPS == 0) {
			if (op)
				player.nccl.stop(op);
			op = player_op(&player, context, task, getpid(), 0, 1);
			event.parent = op;
		}
		uint64_t at[6];
		at[0] = now_ns();
		player.nccl.start(context, &step, &event);
		at[1] = now_ns();
		player.nccl.state(step, NCCL_SEND_GPU_WAIT, &args);
		at[2] = now_ns();
		player.nccl.state(step, NCCL_SEND_PEER_WAIT, &args);
		at[3] = now_ns();
		player.nccl.state(step, NCCL_SEND_WAIT, &args);
		at[4] = now_ns();
		player.nccl.stop(step);
		at[5] = now_ns();
		for (int each = 0; each < 5; each++, number++) {
			took[number] = at[each + 1] - at[each];
			uint64_t before = now_ns();
			empty[number] = now_ns() - before;
		}
	}
	player.nccl.stop(op);
	qsort(took, number, sizeof(*took), ascending);
	qsort(empty, number, sizeof(*empty), ascending);
	printf("timed %lu %lu %lu %lu\n", took[number / 2], took[number * 99 / 100], empty[number / 2],
	       empty[number * 99 / 100]);
	fflush(stdout);
	free(took);
	free(empty);
}

/* So many chunks a second: calls of two operations with eight steps each. */
static void paced(int chunks_per_s, int seconds)
{
	const int chunks = 16;
	uint64_t began = now_ns(), gap = (uint64_t)chunks * 1000000000u / (uint64_t)chunks_per_s;
	long calls = (long)chunks_per_s * seconds / chunks, failed = 0;
	for (long i = 0; i < calls; i++) {
		struct piece piece = {.calls = 1, .ops = 2, .steps = chunks / 2, .first_seq = (uint64_t)i};
		failed += player_play(&player, context, piece);
		uint64_t due = began + (uint64_t)(i + 1) * gap, at = now_ns();
		if (due > at)
			usleep((useconds_t)((due - at) / 1000));
	}
	say("failed", failed);
}

static void follow(const char *line)
{
	struct piece piece = {0};
	struct job job = {0};
	long a, b;
	b = 3;
	if (sscanf(line, "init %ld %ld", &a, &b) >= 1)
		init(a, (int)b);
	else if (sscanf(line, "play %d %d %d %lu %d", &piece.calls, &piece.ops, &piece.steps,
			&piece.first_seq, &piece.gpu_us) >= 4)
		say("failed", player_play(&player, context, piece));
	else if (sscanf(line, "p2p %d %d %d", &piece.calls, &piece.ops, &piece.steps) == 3) {
		piece.is_p2p = 1;
		say("failed", player_play(&player, context, piece));
	} else if (sscanf(line, "threads %ld %d %d %d", &a, &piece.calls, &piece.ops, &piece.steps) == 4)
		threads(a < MOST_THREADS ? (int)a : MOST_THREADS, piece);
	else if (sscanf(line, "hold %ld", &a) == 1)
		hold((int)a);
	else if (sscanf(line, "foreign %ld %lx", &a, (unsigned long *)&b) == 2)
		foreign((int)a, (void *)b);
	else if (sscanf(line, "timed %ld", &a) == 1)
		timed((int)a);
	else if (sscanf(line, "paced %ld %ld", &a, &b) == 2)
		paced((int)a, (int)b);
	else if (sscanf(line, "job %d %d %lu %lu %d", &job.calls, &job.steps, &job.wire_ns, &job.compute_ns,
			&job.is_told) == 5)
		say("took", (long)job_run(&player, context, &job));
	else if (!strncmp(line, "fork", 4))
		in_child();
	else if (!strncmp(line, "wrong", 5))
		wrong();
	else if (!strncmp(line, "finalize", 8))
		say("failed", player.nccl.finalize(context));
	else if (!strncmp(line, "closefds", 8)) {
		for (int fd = 3; fd < 64; fd++)
			close(fd);
		say("closed", 0);
	} else
		say("what?", -1);
}

int main(int argc, char **argv)
{
	char line[128];
	if (argc != 3 || player_open(&player, argv[1], atoi(argv[2]))) {
		fprintf(stderr, "%s LIBRARY VERSION: no such profiler\n", argv[0]);
		return 1;
	}
	while (fgets(line, sizeof(line), stdin)) {
		if (strncmp(line, "reopen", 6)) {
			follow(line);
			continue;
		}
		caller_close(&player.nccl);
		say("reopened", player_open(&player, argv[1], atoi(argv[2])));
	}
	return 0;
}
