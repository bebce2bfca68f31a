/* SPDX-License-Identifier: Apache-2.0 */
#include "told.h"

#include "ends.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define AT_ONCE 64

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* Few at once, so that no queue overflows. */
static void write_each(void)
{
	uint32_t posted = 0, done = 0;
	while (done < transfer.count) {
		while (posted < transfer.count && posted - done < AT_ONCE)
			ends_post(posted++);
		done += ends_complete();
	}
	printf("%u", done);
}

static struct ibv_qp_attr state_of(const struct pair *pair)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	errno = lib.query_qp(pair->qp, &attr, IBV_QP_STATE, &init);
	if (errno)
		fail("query_qp");
	return attr;
}

static void modify(struct pair *pair, struct ibv_qp_attr attr, int mask)
{
	errno = lib.modify_qp(pair->qp, &attr, mask);
	if (errno)
		fail("modify_qp");
}

static void drain(struct pair *pair, uint32_t flow_label)
{
	modify(pair, (struct ibv_qp_attr){.qp_state = IBV_QPS_SQD}, IBV_QP_STATE);
	while (state_of(pair).sq_draining)
		;
	modify(pair, (struct ibv_qp_attr){.qp_state = IBV_QPS_SQD, .ah_attr = ends_path(pair, flow_label)},
	       IBV_QP_STATE | IBV_QP_AV);
	modify(pair, (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS}, IBV_QP_STATE);
}

static void drain_each(uint32_t flow_label)
{
	for (uint32_t i = 0; i < transfer.count; i++) {
		uint64_t began_ns = now_ns();
		drain(&transfer.pairs[i], flow_label);
		printf("%llu ", (unsigned long long)(now_ns() - began_ns));
	}
}

static void tell_states(void)
{
	uint32_t sending = 0;
	for (uint32_t i = 0; i < transfer.count; i++)
		sending += state_of(&transfer.pairs[i]).qp_state == IBV_QPS_RTS;
	printf("%u", sending);
}

void told(void)
{
	char line[64];
	uint32_t flow_label;
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "write\n"))
			write_each();
		else if (!strcmp(line, "states\n"))
			tell_states();
		else if (sscanf(line, "drain %u", &flow_label) == 1)
			drain_each(flow_label);
		printf("\n");
		fflush(stdout);
	}
}
