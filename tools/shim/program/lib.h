/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libibverbs as this program has come by them, and what they are tried with. */
#pragma once

#include "fake.h"

#include <infiniband/verbs.h>

struct lib {
	struct ibv_device **(*get_device_list)(int *count);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *device);
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	int (*query_gid)(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid);
	int (*query_port)(struct ibv_context *context, uint8_t port,
			  struct ibv_port_attr *attr); /* as NCCL only */
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *address, size_t bytes, int access);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *own,
				    struct ibv_comp_channel *channel, int vector);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
	int (*destroy_qp)(struct ibv_qp *qp);
};

extern struct lib lib;

/* Linked, or looked up as NCCL does. Ends the program where something is not there. */
void lib_find(void);

/* The fake's controls; NULL where the library is another. */
const struct fake_controls *lib_controls(void);

/* A device by its name, opened. */
struct ibv_context *lib_open(const char *name);
