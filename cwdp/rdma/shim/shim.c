/* SPDX-License-Identifier: Apache-2.0 */
/* Stands before libibverbs: the queue pairs of a program leave by the paths that the agent of its host wants
 * for them.
 *
 * A call returns what it returns without this, errno included. Where the program has chosen a flow label, it
 * stays.
 */
#include "agent.h"
#include "known.h"
#include "move.h"
#include "real.h"
#include "table.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

/* Devices that refuse flow labels are rare: for them no label is given to any queue pair any more. */
static _Atomic bool labels_refused;

static bool wants_label(const struct ibv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	return mask & IBV_QP_AV && attr->ah_attr.is_global && !attr->ah_attr.grh.flow_label &&
	       (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_UC) && !atomic_load(&labels_refused);
}

static bool goes_to_rtr(const struct ibv_qp_attr *attr, int mask)
{
	return mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RTR;
}

static uint32_t label_for(const struct known *known, const struct ibv_ah_attr *path)
{
	return table_flow_label(known->name.device, path->port_num, path->grh.sgid_index, path->grh.dgid.raw);
}

/* With the table's flow label in place of the program's 0; once more with the program's, where that is
 * refused. Only what the mask names is copied: an older program's structure is shorter.
 */
static int modify_with(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, uint32_t label, bool *took)
{
	struct ibv_qp_attr ours;
	memcpy(&ours, attr,
	       mask & IBV_QP_RATE_LIMIT ? sizeof(ours) : offsetof(struct ibv_qp_attr, rate_limit));
	ours.ah_attr.grh.flow_label = label;
	int failed = real_verbs()->modify_qp(qp, &ours, mask);
	*took = !failed;
	if (!failed)
		return 0;
	failed = real_verbs()->modify_qp(qp, attr, mask);
	if (!failed) {
		atomic_store(&labels_refused, true);
		agent_count_refused();
	}
	return failed;
}

static int modify_held(struct known *known, struct ibv_qp_attr *attr, int mask)
{
	bool to_rtr = goes_to_rtr(attr, mask), by_table = false;
	uint32_t label = to_rtr && wants_label(known->qp, attr, mask) ? label_for(known, &attr->ah_attr) : 0;
	int failed = label ? modify_with(known->qp, attr, mask, label, &by_table)
			   : real_verbs()->modify_qp(known->qp, attr, mask);
	int told = errno;
	if (!failed && to_rtr && mask & IBV_QP_AV) {
		struct ibv_ah_attr path = attr->ah_attr;
		if (by_table)
			path.grh.flow_label = label;
		known->actuator = move_actuator(known->qp->context->device);
		known_path(known, &path, mask & IBV_QP_DEST_QPN ? attr->dest_qp_num : 0, by_table);
	}
	if (!failed && mask & IBV_QP_STATE)
		known_state(known, attr->qp_state);
	errno = told;
	return failed;
}

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = real_verbs()->open_device(device);
	int told = errno;
	if (context && agent_wanted())
		agent_start();
	errno = told;
	return context;
}

EXPORTED struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = real_verbs()->create_qp(pd, attr);
	int told = errno;
	struct known *known = qp && agent_wanted() ? known_hold(qp) : NULL;
	if (known)
		known_release(known);
	errno = told;
	return qp;
}

EXPORTED int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int before = errno;
	struct known *known = agent_wanted() ? known_hold(qp) : NULL;
	if (known && goes_to_rtr(attr, mask))
		agent_start();
	errno = before;
	if (!known)
		return real_verbs()->modify_qp(qp, attr, mask);
	int failed = modify_held(known, attr, mask);
	int told = errno;
	known_release(known);
	agent_wake();
	errno = told;
	return failed;
}

EXPORTED int ibv_destroy_qp(struct ibv_qp *qp)
{
	int before = errno;
	struct known *known = agent_wanted() ? known_hold(qp) : NULL;
	errno = before;
	int failed = real_verbs()->destroy_qp(qp);
	int told = errno;
	if (known) {
		if (!failed)
			known_gone(known);
		known_release(known);
		agent_wake();
	}
	errno = told;
	return failed;
}
