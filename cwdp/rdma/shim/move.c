/* SPDX-License-Identifier: Apache-2.0 */
#include "move.h"

#include "real.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DRAIN_GLANCE_NS 100000
#define FIRST_SPORT     0xc000

uint64_t move_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static bool is_bnxt(struct ibv_device *device)
{
	char path[sizeof(device->ibdev_path) + 32], driver[256];
	snprintf(path, sizeof(path), "%s/device/driver", device->ibdev_path);
	ssize_t length = readlink(path, driver, sizeof(driver) - 1);
	if (length < 0)
		return false;
	driver[length] = '\0';
	return strstr(driver, "bnxt") != NULL;
}

enum cwdp_verbs_actuator move_actuator(struct ibv_device *device)
{
	if (real_mlx5_set_sport(device))
		return CWDP_VERBS_MLX5DV;
	if (real_bnxt_set_sport() && is_bnxt(device))
		return CWDP_VERBS_BNXT;
	return CWDP_VERBS_CREATE_ONLY;
}

/* The lowest flow label, never 0, that leads to a source port (rdma_flow_label_to_udp_sport of libibverbs).
 */
static uint32_t flow_label_of(uint16_t sport)
{
	uint32_t low = sport & 0x3fffu;
	return low ? low : (1u << 14 | 1);
}

static int to_state(struct known *known, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	return real_verbs()->modify_qp(known->qp, &attr, IBV_QP_STATE);
}

static int drained(struct known *known, uint64_t deadline_ns)
{
	const struct timespec glance = {.tv_nsec = DRAIN_GLANCE_NS};
	for (;;) {
		struct ibv_qp_attr attr = {0};
		struct ibv_qp_init_attr init;
		int failed = real_verbs()->query_qp(known->qp, &attr, IBV_QP_STATE, &init);
		if (failed || !attr.sq_draining)
			return failed;
		if (atomic_load(&known->waiting) || move_now_ns() > deadline_ns)
			return ETIMEDOUT;
		nanosleep(&glance, NULL);
	}
}

/* IBTA 10.3.1: the send queue is drained, gets another address vector, and goes on. What is posted meanwhile
 * waits. */
static int by_draining(struct known *known, uint16_t sport, uint64_t deadline_ns)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .ah_attr = known->path};
	attr.ah_attr.grh.flow_label = flow_label_of(sport);
	int failed = to_state(known, IBV_QPS_SQD);
	if (failed)
		return failed;
	failed = drained(known, deadline_ns);
	if (!failed)
		failed = real_verbs()->modify_qp(known->qp, &attr, IBV_QP_STATE | IBV_QP_AV);
	int stuck = to_state(known, IBV_QPS_RTS);
	return stuck ? stuck : failed;
}

int move(struct known *known, const struct cwdp_verbs_move *order, enum cwdp_verbs_actuator *by)
{
	uint16_t sport = (uint16_t)order->sport;
	*by = CWDP_VERBS_CREATE_ONLY;
	if (order->sport < FIRST_SPORT || order->sport > UINT16_MAX)
		return EINVAL;
	if (!known->has_path || known->name.state != IBV_QPS_RTS)
		return ENOTCONN;
	if (move_now_ns() > order->deadline_ns)
		return ETIMEDOUT;
	*by = known->actuator;
	int failed = EOPNOTSUPP;
	if (*by == CWDP_VERBS_MLX5DV)
		failed = real_mlx5_set_sport(known->qp->context->device)(known->qp, sport);
	else if (*by == CWDP_VERBS_BNXT)
		failed = real_bnxt_set_sport()(known->qp, sport);
	else if (order->with_sqd) {
		*by = CWDP_VERBS_SQD;
		failed = by_draining(known, sport, order->deadline_ns);
	}
	if (!failed)
		known_label(known, flow_label_of(sport));
	return failed;
}
