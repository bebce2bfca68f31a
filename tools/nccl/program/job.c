/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include <time.h>
#include <unistd.h>

#define CHANNEL   0
#define UNDER_WAY 8 /* chunks: NCCL_STEPS */

/* The chunks of a call: so many were posted and are over, and the last ones are gone from the NIC at these
 * times. */
struct chunks {
	void *op;
	void *step[UNDER_WAY];
	uint64_t gone_ns[UNDER_WAY];
	int posted;
	int over;
};

uint64_t now_ns(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void wait_until(uint64_t until_ns)
{
	while (now_ns() < until_ns)
		;
}

/* The NIC sends one chunk behind the other. */
static void post(const struct player *player, void *context, const struct job *job, struct chunks *chunks)
{
	int place = chunks->posted % UNDER_WAY, before = (chunks->posted + UNDER_WAY - 1) % UNDER_WAY;
	uint64_t begins_ns = now_ns();
	if (job->is_told) {
		chunks->step[place] = player_step(player, context, chunks->op, chunks->posted);
		player_send_states(player, chunks->step[place], 0);
	}
	if (chunks->posted > chunks->over && chunks->gone_ns[before] > begins_ns)
		begins_ns = chunks->gone_ns[before];
	chunks->gone_ns[place] = begins_ns + job->wire_ns;
	chunks->posted++;
}

static void call(const struct player *player, void *context, const struct job *job, uint64_t seq)
{
	struct chunks chunks = {0};
	if (job->is_told) {
		void *task = player_task(player, context, seq, 0);
		caller_stop(&player->nccl, task);
		chunks.op = player_op(player, context, task, getpid(), CHANNEL, 1);
	}
	while (chunks.over < job->steps) {
		if (chunks.posted < job->steps && chunks.posted - chunks.over < UNDER_WAY)
			post(player, context, job, &chunks);
		if (chunks.over < chunks.posted && now_ns() >= chunks.gone_ns[chunks.over % UNDER_WAY]) {
			if (job->is_told)
				caller_stop(&player->nccl, chunks.step[chunks.over % UNDER_WAY]);
			chunks.over++;
		}
	}
	if (job->is_told)
		caller_stop(&player->nccl, chunks.op);
}

uint64_t job_run(const struct player *player, void *context, const struct job *job)
{
	uint64_t began_ns = now_ns();
	for (int i = 0; i < job->calls; i++) {
		wait_until(now_ns() + job->compute_ns);
		call(player, context, job, (uint64_t)i);
	}
	return now_ns() - began_ns;
}
