/* SPDX-License-Identifier: Apache-2.0 */
#include "stress.h"

#include "pairs.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 64
#define PAIRS        32
#define STRIDE       7919 /* from one destination to the next, as far as caches are concerned */
#define PAUSE_US     1000 /* queue pairs live long enough for an agent to hear of them */

static uint64_t until_ns;
static char device[32];

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static struct ibv_qp *connected(struct ibv_pd *pd, unsigned *seed)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = lib.create_qp(pd, &init);
	struct ibv_qp_attr attr = {.ah_attr = {.is_global = 1, .port_num = 1, .dlid = 32}};
	if (!qp)
		return NULL;
	attr.ah_attr.grh.sgid_index = 3;
	attr.ah_attr.grh.dgid.raw[15] = rand_r(seed) % 8;
	for (attr.qp_state = IBV_QPS_INIT; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++)
		if (lib.modify_qp(qp, &attr,
				  IBV_QP_STATE |
					  (attr.qp_state == IBV_QPS_RTR ? IBV_QP_AV | IBV_QP_DEST_QPN : 0)))
			return NULL;
	return qp;
}

static bool posted(struct ibv_qp *qp)
{
	struct ibv_sge part = {.length = 4096};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = &part, .num_sge = 1}, *bad;
	return !ibv_post_send(qp, &wr, &bad);
}

static intptr_t one_device(unsigned *seed)
{
	struct ibv_qp *pairs[PAIRS] = {0};
	struct ibv_context *context = lib_open(device);
	struct ibv_pd *pd = lib.alloc_pd(context);
	intptr_t count = 0;
	for (int turn = 0; turn < 8 * PAIRS; turn++) {
		struct ibv_qp **one = &pairs[rand_r(seed) % PAIRS];
		if (*one && lib.destroy_qp(*one))
			return -1;
		count += *one != NULL;
		*one = connected(pd, seed);
		usleep(PAUSE_US);
		if (!*one || !posted(*one))
			return -1;
	}
	for (int i = 0; i < PAIRS; i++)
		if (pairs[i] && lib.destroy_qp(pairs[i]))
			return -1;
	lib.dealloc_pd(pd);
	return lib.close_device(context) ? -1 : count;
}

static void *work(void *number)
{
	unsigned seed = (unsigned)(intptr_t)number;
	intptr_t count = 0;
	while (now_ns() < until_ns) {
		intptr_t more = one_device(&seed);
		if (more < 0)
			return (void *)-1;
		count += more;
	}
	return (void *)count;
}

int stress(const char *rest)
{
	pthread_t threads[MOST_THREADS];
	int count, wait_ms;
	intptr_t sum = 0;
	sscanf(rest, "%d %d %31s", &count, &wait_ms, device);
	until_ns = now_ns() + (uint64_t)wait_ms * 1000000;
	for (intptr_t i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	for (int i = 0; i < count; i++) {
		void *done;
		pthread_join(threads[i], &done);
		sum = (intptr_t)done < 0 || sum < 0 ? -1 : sum + (intptr_t)done;
	}
	return (int)sum;
}

void time_rtr(const char *rest)
{
	static uint32_t turn;
	int count, context;
	unsigned last_of = 1, label = 0;
	char text[64];
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .ah_attr = {.is_global = 1, .port_num = 1}};
	sscanf(rest, "%d %d %63s %u %u", &count, &context, text, &last_of, &label);
	attr.ah_attr.grh.sgid_index = 3;
	attr.ah_attr.grh.flow_label = label;
	for (int i = 0; i < 16; i++)
		sscanf(text + 2 * i, "%2hhx", &attr.ah_attr.grh.dgid.raw[i]);
	printf("time");
	for (int i = 0; i < count; i++) {
		uint32_t last = turn++ * STRIDE % last_of;
		memcpy(attr.ah_attr.grh.dgid.raw + 12, &last, sizeof(last));
		int place = pair_create(context, IBV_QPT_RC, 1);
		attr.qp_state = IBV_QPS_INIT;
		lib.modify_qp(pair_at(place), &attr, IBV_QP_STATE);
		attr.qp_state = IBV_QPS_RTR;
		uint64_t began_ns = now_ns();
		int failed = lib.modify_qp(pair_at(place), &attr, IBV_QP_STATE | IBV_QP_AV);
		printf(" %ld", failed ? -1 : (long)(now_ns() - began_ns));
		pair_destroy(place);
	}
	printf("\n");
}
