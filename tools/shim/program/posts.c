/* SPDX-License-Identifier: Apache-2.0 */
#include "posts.h"

#include "pairs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ERRNO_BEFORE 77
#define MOST_WRS     16
#define MOST_PARTS   128

static struct ibv_send_wr wrs[MOST_WRS];
static struct ibv_sge parts[MOST_WRS][MOST_PARTS];

static void read_requests(char *more, enum ibv_wr_opcode opcode)
{
	int count = 0;
	memset(wrs, 0, sizeof(wrs));
	wrs[0] = (struct ibv_send_wr){.opcode = opcode, .sg_list = parts[0]};
	for (char *word = strtok_r(NULL, " ", &more); word; word = strtok_r(NULL, " ", &more)) {
		if (word[0] == '/') {
			wrs[count].next = &wrs[count + 1];
			count++;
			wrs[count] = (struct ibv_send_wr){.opcode = opcode, .sg_list = parts[count]};
			continue;
		}
		if (word[0] == '!')
			wrs[count].wr_id = 1;
		parts[count][wrs[count].num_sge++].length = (uint32_t)atoi(word + (word[0] == '!'));
	}
}

void post(char *rest)
{
	char *more;
	struct ibv_send_wr *bad = NULL;
	int place = atoi(strtok_r(rest, " ", &more));
	enum ibv_wr_opcode opcode = atoi(strtok_r(NULL, " ", &more));
	read_requests(more, opcode);
	errno = ERRNO_BEFORE;
	int failed = ibv_post_send(pair_at(place), wrs, &bad);
	int told = errno;
	printf("post %d %d %d\n", failed, bad ? (int)(bad - wrs) : -1, told);
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void time_post(const char *rest)
{
	int turns, times, place;
	struct ibv_send_wr *bad;
	sscanf(rest, "%d %d %d", &turns, &times, &place);
	struct ibv_sge part = {.length = 65536};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &part, .num_sge = 1};
	printf("time-post");
	for (int turn = 0; turn < turns; turn++) {
		uint64_t began_ns = now_ns();
		for (int i = 0; i < times; i++)
			if (ibv_post_send(pair_at(place), &wr, &bad))
				abort();
		printf(" %ld", (long)(now_ns() - began_ns));
	}
	printf("\n");
}
