/* SPDX-License-Identifier: Apache-2.0 */
/* What the library of Broadcom's bnxt_re has to give queue pairs other source ports, which rdma-core's has
 * not: it notes them.
 */
#include "fake.h"

#include <errno.h>
#include <infiniband/verbs.h>

extern const struct fake_controls fake_controls;

int bnxt_re_dv_modify_qp_udp_sport(struct ibv_qp *qp, uint16_t udp_sport);

int bnxt_re_dv_modify_qp_udp_sport(struct ibv_qp *qp, uint16_t udp_sport)
{
	struct fake_call call = {
		.what = "udp_sport", .qpn = qp->qp_num, .state = qp->state, .sport = udp_sport};
	call.result = qp->state == IBV_QPS_RTS ? 0 : EINVAL;
	fake_controls.note(&call);
	return call.result;
}
