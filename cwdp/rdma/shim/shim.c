/* SPDX-License-Identifier: Apache-2.0 */
/* Stands before libibverbs: the queue pairs of a program leave by the paths that the agent of its host wants
 * for them.
 *
 * A call returns what it returns without this, errno included. Where the program has chosen a flow label, it
 * stays.
 */
#include "agent.h"
#include "ib/lids.h"
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

/* Devices that refuse flow labels or LIDs are rare: after one has, none is given to any queue pair any more.
 */
static _Atomic bool labels_refused, lids_refused;

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

static bool is_connected(const struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return goes_to_rtr(attr, mask) && mask & IBV_QP_AV &&
	       (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC);
}

static bool wants_label(const struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return is_connected(qp, attr, mask) && attr->ah_attr.is_global && !attr->ah_attr.grh.flow_label &&
	       !atomic_load(&labels_refused);
}

static bool take_label(const struct known *known, struct ibv_ah_attr *path)
{
	uint32_t label = table_flow_label(known->name.device, path->port_num, path->grh.sgid_index,
					  path->grh.dgid.raw);
	if (label)
		path->grh.flow_label = label;
	return label;
}

static struct taken path_for(const struct known *known, const struct ibv_qp_attr *attr, int mask)
{
	struct taken taken = {.path = attr->ah_attr};
	struct lids ours;
	if (lids_of(known, attr->ah_attr.port_num, &ours)) {
		taken.lid = ours.lid;
		taken.by_table = is_connected(known->qp, attr, mask) && mask & IBV_QP_DEST_QPN &&
				 !atomic_load(&lids_refused) &&
				 lids_take(&ours, known->name.qpn, attr->dest_qp_num, &taken.path);
	} else if (wants_label(known->qp, attr, mask)) {
		taken.by_table = take_label(known, &taken.path);
	}
	return taken;
}

/* Whether an error may come of the path. Those that say that something else is amiss, or only now, do not.
 */
static bool may_be_of_path(int failed)
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

/* With another path than the program's. Only what the mask names is copied: an older program's
 * structure is shorter.
 */
static void copy_with(struct ibv_qp_attr *ours, const struct ibv_qp_attr *attr, int mask,
		      const struct ibv_ah_attr *path)
{
	memcpy(ours, attr,
	       mask & IBV_QP_RATE_LIMIT ? sizeof(*ours) : offsetof(struct ibv_qp_attr, rate_limit));
	ours->ah_attr = *path;
}

/* Once more with the program's own path, where the table's is refused. `taken`: the one that the queue pair
 * has then.
 */
static int modify_by_table(struct known *known, struct ibv_qp_attr *attr, int mask, struct taken *taken)
{
	struct ibv_qp_attr ours;
	copy_with(&ours, attr, mask, &taken->path);
	int failed = real_verbs()->modify_qp(known->qp, &ours, mask);
	if (!failed)
		return 0;
	taken->path = attr->ah_attr;
	taken->by_table = false;
	if (!may_be_of_path(failed))
		return failed;
	failed = real_verbs()->modify_qp(known->qp, attr, mask);
	if (!failed) {
		atomic_store(taken->lid ? &lids_refused : &labels_refused, true);
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
		struct ibv_ah_attr path = attr->ah_attr;
		path.grh.flow_label = wanted_label;
		copy_with(&ours, attr, mask, &path);
		attr = &ours;
	}
	struct known *known = agent_wanted() ? known_enter(qp) : NULL;
	if (known && goes_to_rtr(attr, mask))
		agent_start();
	struct taken taken = {.by_table = false};
	if (known && mask & IBV_QP_AV)
		taken = path_for(known, attr, mask);
	errno = before;
	int failed = taken.by_table ? modify_by_table(known, attr, mask, &taken)
				    : real_verbs()->modify_qp(qp, attr, mask);
	int told = errno;
	if (known) {
		if (!failed)
			known_changed(known, attr, mask, &taken);
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
