/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libibverbs, and those of vendors' libraries that programs have loaded already. */
#pragma once

#include <infiniband/verbs.h>

struct real {
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
	int (*destroy_qp)(struct ibv_qp *qp);
	const char *(*get_device_name)(struct ibv_device *device);
	int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attr);
	int (*query_port)(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr);
};

typedef int (*set_sport_fn)(struct ibv_qp *qp, uint16_t sport);

/* libibverbs', found once. Without it there is nothing to call, so the process ends, as the loader would end
 * it. */
const struct real *real_verbs(void);

/* The errno of what one that modifies or queries has returned: that, or with older providers -1. */
int real_error(int returned);

/* The vendor's function that gives a queue pair another source port while it sends; NULL where there is none,
 * or where it is not for the device.
 */
set_sport_fn real_mlx5_set_sport(struct ibv_device *device);
set_sport_fn real_bnxt_set_sport(void);

typedef void (*nccl_posted_fn)(uint32_t qpn, uint64_t wr_id, uint64_t bytes, uint32_t requests);

/* Of cwdp's plug-in for NCCL (cwdp/nccl/plugin/posted.h), which stays loaded; NULL where it is not. */
nccl_posted_fn real_nccl_posted(void);
