/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a collective over RC queue pairs, without a GPU: NCCL's order of verbs calls, and of calls to
 * the profiler that NCCL_PROFILER_PLUGIN names. Verbs are looked up as NCCL does (NCCL_IBVERBS_LIB).
 *
 * Standard output has a JSON line of itself, of each chunk that was sent, each call, each iteration, and at
 * the end. Times are CLOCK_MONOTONIC.
 */
#include "data.h"
#include "meet.h"
#include "net.h"
#include "proxy.h"
#include "told.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMM_NAME "cwdp-collective"
#define NS_PER_MS 1000000u

static struct options options;
static struct plan plan;
static struct caller nccl;
static struct profiled profiled;
static struct call calls[2 * (MOST_RANKS - 1)];
static uint64_t comm_id, gpu_ready_ns;
static sem_t enqueued, ended;

/* As NCCL loads it, the newest version first. */
static void load_profiler(void)
{
	const char *library = getenv("NCCL_PROFILER_PLUGIN");
	int newest = options.profiler_version ? options.profiler_version : CALLER_NEWEST;
	int oldest = options.profiler_version ? options.profiler_version : 1;
	if (!library || !strcmp(library, "none"))
		return;
	if (!dlopen(library, RTLD_NOW | RTLD_LOCAL))
		give_up(FAILED, "NCCL_PROFILER_PLUGIN: %s", dlerror());
	for (int version = newest; version >= oldest; version--)
		if (!caller_open(&nccl, library, version)) {
			profiled.nccl = &nccl;
			return;
		}
	give_up(FAILED, "NCCL_PROFILER_PLUGIN: %s has none of the versions %d to %d of the interface",
		library, oldest, newest);
}

static void begin_profiler(void)
{
	int mask = 0;
	struct caller_comm comm = {.name = COMM_NAME,
				   .id = comm_id,
				   .nodes = options.ranks,
				   .ranks = options.ranks,
				   .rank = options.rank};
	if (profiled.nccl)
		profiled.context = caller_init(&nccl, &comm, &mask);
	profiled.mask = (unsigned)mask;
}

static long end_profiler(void)
{
	return profiled.nccl ? nccl.finalize(profiled.context) + caller_failed() : 0;
}

/* Rank 0 names the communicator. */
static void name_comm(void)
{
	uint64_t mine = now_ns() << 8 ^ (uint64_t)getpid(), all[MOST_RANKS];
	meet_gather(&mine, sizeof(mine), all);
	comm_id = all[0];
}

static void enqueue(void)
{
	static uint64_t next_seq[2]; /* of Recv, and of the one other function */
	for (int i = 0; i < plan.calls; i++) {
		const struct plan_call *planned = &plan.call[i];
		bool is_asked = profiled.mask & (planned->peer < 0 ? NCCL_COLL : NCCL_P2P);
		struct caller_call call = {
			.function = planned->function,
			.comm_id = comm_id,
			.seq = next_seq[!strcmp(planned->function, "Recv")]++,
			.count = (size_t)options.bytes / sizeof(float),
			.peer = planned->peer,
			.rank = options.rank,
		};
		calls[i] = (struct call){.seq = call.seq, .enqueued_ns = now_ns()};
		calls[i].handle = is_asked ? caller_call(&nccl, profiled.context, &call) : NULL;
		if (is_asked)
			caller_stop(&nccl, calls[i].handle);
	}
}

static void tell_calls(void)
{
	for (int i = 0; i < plan.calls; i++)
		tell("{\"what\": \"call\", \"function\": \"%s\", \"seq\": %lu, \"peer\": %d, \"bytes\": %d, "
		     "\"enqueued_ns\": %lu, \"end_ns\": %lu}",
		     plan.call[i].function, calls[i].seq, plan.call[i].peer, options.bytes,
		     calls[i].enqueued_ns, calls[i].end_ns);
}

static uint64_t compute_ns(void)
{
	int percent = 100 + (options.rank == options.slow_rank ? options.slow_percent : 0);
	return (uint64_t)options.compute_ms * NS_PER_MS * (uint64_t)percent / 100;
}

static long iterate(int iteration, float *data)
{
	data_fill(data, &plan, &options, iteration);
	uint64_t began_ns = now_ns();
	enqueue();
	gpu_ready_ns = began_ns + compute_ns();
	sem_post(&enqueued);
	sem_wait(&ended);
	uint64_t ended_ns = now_ns();
	long wrong = data_wrong(data, &plan, &options, iteration);
	tell_calls();
	tell("{\"what\": \"iteration\", \"iteration\": %d, \"begin_ns\": %lu, \"gpu_ready_ns\": %lu, "
	     "\"end_ns\": %lu, \"wrong\": %ld}",
	     iteration, began_ns, gpu_ready_ns, ended_ns, wrong);
	return wrong;
}

static void *be_proxy(void *failed)
{
	for (int i = 0; i < options.iterations; i++) {
		sem_wait(&enqueued);
		proxy_run(calls, gpu_ready_ns);
		sem_post(&ended);
	}
	*(long *)failed = caller_failed();
	return NULL;
}

static void say_what_it_is(void)
{
	tell("{\"what\": \"begin\", \"rank\": %d, \"ranks\": %d, \"pid\": %d, \"comm_id\": %lu, "
	     "\"profiler_version\": %d, \"mask\": %u}",
	     options.rank, options.ranks, getpid(), comm_id, profiled.nccl ? nccl.version : 0, profiled.mask);
}

int main(int argc, char **argv)
{
	pthread_t proxy;
	long wrong = 0, failed = 0;
	char together = 0, all[MOST_RANKS];
	options = options_read(argc, argv);
	told_rank(options.rank);
	plan_make(&plan, &options);
	float *data = malloc(plan.data_bytes);
	if (!data)
		give_up(FAILED, "there is no memory for %zu bytes", plan.data_bytes);
	load_profiler();
	net_open(&options);
	meet(&options);
	name_comm();
	begin_profiler();
	proxy_connect(&options, &plan, &profiled, data);
	say_what_it_is();
	meet_gather(&together, 1, all);
	sem_init(&enqueued, 0, 0);
	sem_init(&ended, 0, 0);
	pthread_create(&proxy, NULL, be_proxy, &failed);
	for (int i = 0; i < options.iterations; i++)
		wrong += iterate(i, data);
	pthread_join(proxy, NULL);
	meet_gather(&together, 1, all);
	failed += end_profiler();
	net_close();
	tell("{\"what\": \"end\", \"wrong\": %ld, \"profiler_failed\": %ld}", wrong, failed);
	if (wrong)
		give_up(FAILED, "%ld numbers are wrong", wrong);
	return 0;
}
