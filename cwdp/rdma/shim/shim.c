/* SPDX-License-Identifier: Apache-2.0 */
/* Stands before libibverbs: the queue pairs of a program leave by the paths that the agent of its host wants
 * for them.
 *
 * A call returns what it returns without this, errno included. Where the program has chosen a flow label, it
 * stays.
 */
#include "agent.h"
#include "known.h"
#include "posts/count.h"
#include "real.h"
#include "table.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

/* Devices that refuse flow labels are rare: after one has, no label is given to any queue pair any more. */
static _Atomic bool labels_refused;

/* Of CWDP_VERBS_SPORT: all queue pairs of the program that have chosen none leave by this source port; 0 for
 * none.
 */
static uint32_t wanted_label;

#define LEAST_SPORT 0xc000 /* that a flow label can lead to */

__attribute__((constructor)) static void load(void)
{
	const char *said = secure_getenv("CWDP_VERBS_SPORT");
	long sport = said ? strtol(said, NULL, 10) : 0;
	if (sport >= LEAST_SPORT && sport <= UINT16_MAX)
		wanted_label = flow_label_of((uint16_t)sport);
}

static bool goes_to_rtr(const struct ibv_qp_attr *attr, int mask)
{
	return mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RTR;
}

static bool wants_label(const struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return goes_to_rtr(attr, mask) && mask & IBV_QP_AV && attr->ah_attr.is_global &&
	       !attr->ah_attr.grh.flow_label && (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC) &&
	       !atomic_load(&labels_refused);
}

static uint32_t label_for(const struct known *known, const struct ibv_qp_attr *attr, int mask)
{
	const struct ibv_ah_attr *path = &attr->ah_attr;
	if (!wants_label(known->qp, attr, mask))
		return 0;
	return table_flow_label(known->name.device, path->port_num, path->grh.sgid_index, path->grh.dgid.raw);
}

/* Whether an error may come of the label. Those that say that something else is amiss, or only now, do not.
 */
static bool may_be_of_label(int failed)
{
	switch (failed > 0 ? failed : errno) {
	case EAGAIN:
	case EBUSY:
	case EINTR:
	case ENOMEM:
	case ETIMEDOUT:
		return false;
	default:
		return true;
	}
}

/* With a flow label in place of the program's 0. Only what the mask names is copied: an older program's
 * structure is shorter.
 */
static void copy_with(struct ibv_qp_attr *ours, const struct ibv_qp_attr *attr, int mask, uint32_t label)
{
	memcpy(ours, attr,
	       mask & IBV_QP_RATE_LIMIT ? sizeof(*ours) : offsetof(struct ibv_qp_attr, rate_limit));
	ours->ah_attr.grh.flow_label = label;
}

static int modify_with(struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask, uint32_t label)
{
	struct ibv_qp_attr ours;
	copy_with(&ours, attr, mask, label);
	return real_verbs()->modify_qp(qp, &ours, mask);
}

/* Once more with the program's own label, where the table's is refused. `label`: the one that the queue pair
 * has of the table then.
 */
static int modify_by_table(struct known *known, struct ibv_qp_attr *attr, int mask, uint32_t *label)
{
	int failed = modify_with(known->qp, attr, mask, *label);
	if (!failed)
		return 0;
	*label = 0;
	if (!may_be_of_label(failed))
		return failed;
	failed = real_verbs()->modify_qp(known->qp, attr, mask);
	if (!failed) {
		atomic_store(&labels_refused, true);
		agent_count_refused();
	}
	return failed;
}

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = real_verbs()->open_device(device);
	int told = errno;
	if (context && agent_wanted()) {
		mover_forget(context); /* one that was closed in another way */
		mover_of(context);
		if (agent_wants_counts())
			count_posts_of(context);
		agent_start();
	}
	errno = told;
	return context;
}

EXPORTED int ibv_close_device(struct ibv_context *context)
{
	int before = errno;
	if (agent_wanted()) {
		known_close(context);
		mover_forget(context);
		agent_wake();
	}
	errno = before;
	return real_verbs()->close_device(context);
}

EXPORTED struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = real_verbs()->create_qp(pd, attr);
	int told = errno;
	if (qp && agent_wanted() && agent_wants_counts())
		count_find_plugin();
	struct known *known = qp && agent_wanted() ? known_enter_new(qp) : NULL;
	if (known)
		known_leave(known);
	errno = told;
	return qp;
}

EXPORTED int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int before = errno;
	struct ibv_qp_attr ours;
	if (wanted_label && wants_label(qp, attr, mask)) {
		copy_with(&ours, attr, mask, wanted_label);
		attr = &ours;
	}
	struct known *known = agent_wanted() ? known_enter(qp) : NULL;
	if (known && goes_to_rtr(attr, mask))
		agent_start();
	uint32_t label = known ? label_for(known, attr, mask) : 0;
	errno = before;
	int failed =
		label ? modify_by_table(known, attr, mask, &label) : real_verbs()->modify_qp(qp, attr, mask);
	int told = errno;
	if (known) {
		if (!failed)
			known_changed(known, attr, mask, label);
		known_leave(known);
		agent_wake();
	}
	errno = told;
	return failed;
}

EXPORTED int ibv_destroy_qp(struct ibv_qp *qp)
{
	int before = errno;
	struct known *known = agent_wanted() ? known_enter(qp) : NULL;
	errno = before;
	int failed = real_verbs()->destroy_qp(qp);
	int told = errno;
	if (known) {
		if (!failed)
			known_gone(known);
		known_leave(known);
		agent_wake();
	}
	errno = told;
	return failed;
}
