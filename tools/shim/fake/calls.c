/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

#include <pthread.h>
#include <string.h>

#define MOST_CALLS 65536

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unblocked = PTHREAD_COND_INITIALIZER;
static struct fake_call calls[MOST_CALLS];
static size_t taken, noted;
static int error, skipped, times, glances;
static _Atomic bool is_quiet;
static bool refuses, holds, blocks;
static _Atomic int far_end;

static size_t take_calls(struct fake_call *into, size_t most)
{
	pthread_mutex_lock(&lock);
	size_t count = noted - taken < most ? noted - taken : most;
	memcpy(into, calls + taken, count * sizeof(*into));
	taken += count;
	if (taken == noted)
		taken = noted = 0;
	pthread_mutex_unlock(&lock);
	return count;
}

static void fail(int with, int skip, int how_often)
{
	pthread_mutex_lock(&lock);
	error = with;
	skipped = skip;
	times = how_often;
	pthread_mutex_unlock(&lock);
}

static void refuse_labels(bool refuse)
{
	pthread_mutex_lock(&lock);
	refuses = refuse;
	pthread_mutex_unlock(&lock);
}

static void drain(int count)
{
	pthread_mutex_lock(&lock);
	glances = count;
	pthread_mutex_unlock(&lock);
}

static void hold_draining(bool hold)
{
	pthread_mutex_lock(&lock);
	holds = hold;
	pthread_mutex_unlock(&lock);
}

static void block_destroy(bool block)
{
	pthread_mutex_lock(&lock);
	blocks = block;
	pthread_cond_broadcast(&unblocked);
	pthread_mutex_unlock(&lock);
}

static void far_ends(int have)
{
	far_end = have;
}

static void be_quiet(void)
{
	is_quiet = true;
}

int calls_failing(void)
{
	pthread_mutex_lock(&lock);
	int with = 0;
	if (skipped > 0)
		skipped--;
	else if (times > 0 && times--)
		with = error;
	pthread_mutex_unlock(&lock);
	return with;
}

bool calls_refuse_labels(void)
{
	pthread_mutex_lock(&lock);
	bool refuse = refuses;
	pthread_mutex_unlock(&lock);
	return refuse;
}

int calls_glances(void)
{
	pthread_mutex_lock(&lock);
	int count = glances;
	pthread_mutex_unlock(&lock);
	return count;
}

bool calls_hold_draining(void)
{
	pthread_mutex_lock(&lock);
	bool hold = holds;
	pthread_mutex_unlock(&lock);
	return hold;
}

enum fake_far_end calls_far_ends(void)
{
	return (enum fake_far_end)far_end;
}

void calls_await_destroy(void)
{
	pthread_mutex_lock(&lock);
	while (blocks)
		pthread_cond_wait(&unblocked, &lock);
	pthread_mutex_unlock(&lock);
}

/* Nothing is locked where nothing is noted: what calls cost is measured so. */
void calls_note(const struct fake_call *call)
{
	if (is_quiet)
		return;
	pthread_mutex_lock(&lock);
	if (noted < MOST_CALLS)
		calls[noted++] = *call;
	pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) const struct fake_controls fake_controls = {
	.take_calls = take_calls,
	.fail = fail,
	.refuse_labels = refuse_labels,
	.drain = drain,
	.hold_draining = hold_draining,
	.block_destroy = block_destroy,
	.far_ends = far_ends,
	.be_quiet = be_quiet,
	.note = calls_note,
};
