/* SPDX-License-Identifier: Apache-2.0 */
/* A libmlx5 for devices that are called mlx5_...: it notes the source ports that queue pairs are given. */
#include "fake.h"

#include <infiniband/mlx5dv.h>
#include <string.h>

extern const struct fake_controls fake_controls;

bool mlx5dv_is_supported(struct ibv_device *device)
{
	return !strncmp(device->name, "mlx5_", 5);
}

int mlx5dv_modify_qp_udp_sport(struct ibv_qp *qp, uint16_t sport)
{
	struct fake_call call = {.what = "udp_sport", .qpn = qp->qp_num, .state = qp->state, .sport = sport};
	call.result = qp->state == IBV_QPS_RTS ? 0 : EINVAL;
	fake_controls.note(&call);
	return call.result;
}
