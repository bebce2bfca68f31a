/* SPDX-License-Identifier: Apache-2.0 */
#include "apm.h"

#include "lids.h"
#include "../real.h"

#include <errno.h>
#include <time.h>

#define GLANCE_NS 100000
#define ARMING_NS 5000000

static int query(const struct known *known, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;
	*attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET};
	int failed = real_error(real_verbs()->query_qp(known->qp, attr,
						       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PKEY_INDEX |
							       IBV_QP_TIMEOUT | IBV_QP_PATH_MIG_STATE,
						       &init));
	return failed ? failed : attr->qp_state == IBV_QPS_RTS ? 0 : ENOTCONN;
}

/* The path of an order; EINVAL where it is not one of both ends. */
static int path_of(const struct known *known, const struct cwdp_verbs_move *order, struct ibv_ah_attr *path)
{
	struct lids ours;
	if (!lids_of(known, known->path.port_num, &ours))
		return ENOTCONN;
	int number = lids_number(&ours, order->path, order->lmc);
	if (number < 0 || (order->path ^ known->path.dlid) >> order->lmc)
		return EINVAL;
	*path = known->path;
	path->dlid = (uint16_t)order->path;
	path->src_path_bits = (uint8_t)number;
	return 0;
}

int apm_load(struct known *known, const struct cwdp_verbs_move *order)
{
	struct ibv_qp_attr attr;
	struct ibv_ah_attr there;
	int failed = path_of(known, order, &there);
	if (!failed)
		failed = query(known, &attr);
	if (failed)
		return failed;
	bool is_migrated = attr.path_mig_state == IBV_MIG_MIGRATED;
	if (known->has_own_alternate || (!is_migrated && !known->loaded_dlid))
		return EBUSY;
	if (attr.ah_attr.dlid != known->path.dlid) {
		known_went(known, &attr.ah_attr);
		return EALREADY;
	}
	if (attr.ah_attr.dlid == there.dlid)
		return EINVAL;
	if (!is_migrated && known->loaded_dlid == there.dlid)
		return 0;
	attr.alt_ah_attr = there;
	attr.alt_port_num = there.port_num;
	attr.alt_pkey_index = attr.pkey_index;
	attr.alt_timeout = attr.timeout;
	attr.path_mig_state = IBV_MIG_REARM;
	failed = real_error(
		real_verbs()->modify_qp(known->qp, &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE));
	if (!failed)
		known->loaded_dlid = there.dlid;
	return failed;
}

/* 0 once it is armed, or has migrated. */
static int armed(struct known *known, uint64_t deadline_ns, struct ibv_qp_attr *attr)
{
	const struct timespec pause = {.tv_nsec = GLANCE_NS};
	uint64_t until_ns = now_ns() + ARMING_NS;
	for (;;) {
		int failed = query(known, attr);
		if (failed || attr->path_mig_state != IBV_MIG_REARM)
			return failed;
		if (known_is_called(known))
			return EBUSY;
		if (now_ns() > deadline_ns)
			return ETIMEDOUT;
		if (now_ns() > until_ns)
			return EAGAIN;
		nanosleep(&pause, NULL);
	}
}

static int migrate(const struct known *known)
{
	struct ibv_qp_attr attr = {.path_mig_state = IBV_MIG_MIGRATED};
	return real_error(real_verbs()->modify_qp(known->qp, &attr, IBV_QP_PATH_MIG_STATE));
}

int apm_migrate(struct known *known, const struct cwdp_verbs_move *order, struct ibv_ah_attr *path)
{
	struct ibv_qp_attr attr;
	if (known->has_own_alternate)
		return EBUSY;
	if (!known->loaded_dlid || known->loaded_dlid != order->path)
		return EINVAL;
	int failed = path_of(known, order, path);
	if (!failed)
		failed = armed(known, order->deadline_ns, &attr);
	if (!failed && attr.path_mig_state == IBV_MIG_ARMED)
		failed = migrate(known);
	else if (!failed && attr.ah_attr.dlid != path->dlid)
		failed = EINVAL; /* something else has taken it elsewhere, or back */
	if (!failed)
		known->loaded_dlid = 0;
	return failed;
}
