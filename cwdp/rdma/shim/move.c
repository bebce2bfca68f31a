/* SPDX-License-Identifier: Apache-2.0 */
#include "move.h"

#include "drain.h"
#include "guard.h"
#include "ib/apm.h"
#include "ib/lids.h"
#include "known.h"
#include "real.h"
#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_SPORT 0xc000
#define MOST_OPEN   64

static struct {
	struct ibv_context *context;
	struct mover mover;
} opened[MOST_OPEN];
static uint32_t next_opened; /* the oldest makes room */

static bool is_bnxt(const struct ibv_device *device)
{
	char path[sizeof(device->ibdev_path) + 32], driver[256];
	snprintf(path, sizeof(path), "%s/device/driver", device->ibdev_path);
	ssize_t length = readlink(path, driver, sizeof(driver) - 1);
	if (length < 0)
		return false;
	driver[length] = '\0';
	return strstr(driver, "bnxt") != NULL;
}

/* Only Soft-RoCE tells of each device which interface it is on, in a file of that name. */
static bool is_soft(const struct ibv_device *device)
{
	char path[sizeof(device->ibdev_path) + 32];
	snprintf(path, sizeof(path), "%s/parent", device->ibdev_path);
	return !access(path, F_OK);
}

static struct mover mover_by(struct ibv_device *device)
{
	struct mover mover = {.set_sport = real_mlx5_set_sport(device), .actuator = CWDP_VERBS_MLX5DV};
	if (mover.set_sport)
		return mover;
	if (is_bnxt(device))
		mover = (struct mover){.set_sport = real_bnxt_set_sport(), .actuator = CWDP_VERBS_BNXT};
	if (!mover.set_sport)
		mover = (struct mover){.actuator = CWDP_VERBS_CREATE_ONLY, .needs_doorbell = is_soft(device)};
	return mover;
}

static struct mover look_up(struct ibv_context *context)
{
	struct mover mover = mover_by(context->device);
	struct ibv_device_attr attr = {0};
	if (real_verbs()->query_device(context, &attr))
		return mover;
	mover.has_apm = attr.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG;
	mover.ib_ports = lids_ports(context, attr.phys_port_cnt);
	return mover;
}

static int place_of(const struct ibv_context *context)
{
	for (int i = 0; i < MOST_OPEN; i++)
		if (opened[i].context == context)
			return i;
	return -1;
}

struct mover mover_of(struct ibv_context *context)
{
	struct mover mover;
	pthread_mutex_lock(&guard);
	int place = place_of(context);
	if (place >= 0)
		mover = opened[place].mover;
	pthread_mutex_unlock(&guard);
	if (place >= 0)
		return mover;
	mover = look_up(context);
	pthread_mutex_lock(&guard);
	place = (int)(next_opened++ % MOST_OPEN);
	opened[place].context = context;
	opened[place].mover = mover;
	pthread_mutex_unlock(&guard);
	return mover;
}

void mover_forget(struct ibv_context *context)
{
	int place;
	pthread_mutex_lock(&guard);
	while ((place = place_of(context)) >= 0)
		opened[place].context = NULL;
	pthread_mutex_unlock(&guard);
}

enum cwdp_verbs_actuator mover_actuator(const struct mover *mover, bool by_lid)
{
	if (!by_lid)
		return mover->actuator;
	return mover->has_apm ? CWDP_VERBS_APM : CWDP_VERBS_CREATE_ONLY;
}

uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static int take_sport(struct known *known, const struct cwdp_verbs_move *order, uint32_t *by)
{
	uint16_t sport = (uint16_t)order->path;
	if (order->path < FIRST_SPORT || order->path > UINT16_MAX)
		return EINVAL;
	if (known->mover.set_sport)
		return real_error(known->mover.set_sport(known->qp, sport));
	if (order->how != CWDP_VERBS_MAY_DRAIN)
		return EOPNOTSUPP;
	*by = CWDP_VERBS_SQD;
	return drain_and_move(known, flow_label_of(sport), order->deadline_ns);
}

/* `path`: the one that it has then. */
static int move_held(struct known *known, const struct cwdp_verbs_move *order, uint32_t *by,
		     struct ibv_ah_attr *path)
{
	bool by_lid = order->how >= CWDP_VERBS_LOAD;
	if (!known->has_path || known->name.state != IBV_QPS_RTS)
		return ENOTCONN;
	if (now_ns() > order->deadline_ns)
		return ETIMEDOUT;
	*by = mover_actuator(&known->mover, known->lid);
	if (by_lid != (known->lid != 0) || (by_lid && !known->mover.has_apm))
		return EOPNOTSUPP;
	if (by_lid)
		return order->how == CWDP_VERBS_LOAD ? apm_load(known, order)
						     : apm_migrate(known, order, path);
	int failed = take_sport(known, order, by);
	if (!failed)
		path->grh.flow_label = flow_label_of((uint16_t)order->path);
	return failed;
}

struct cwdp_verbs_moved move(const struct cwdp_verbs_move *order)
{
	struct known *known;
	uint64_t began_ns = now_ns();
	struct cwdp_verbs_moved moved = {
		.head = order->head, .number = order->number, .actuator = CWDP_VERBS_CREATE_ONLY};
	moved.head.kind = CWDP_VERBS_MOVED;
	int failed = order->how > CWDP_VERBS_MIGRATE ? EINVAL : known_begin_move(&order->head, &known);
	if (!failed) {
		struct ibv_ah_attr path = known->path;
		failed = move_held(known, order, &moved.actuator, &path);
		moved.head.state = known->name.state;
		known_end_move(known, failed ? NULL : &path);
	}
	moved.error = (uint32_t)failed;
	moved.took_ns = now_ns() - began_ns;
	return moved;
}
