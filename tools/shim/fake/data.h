/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the fake libibverbs: RDMA WRITEs between processes of this host, for GIDs that are a process's. */
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>

/* Whether a queue pair leads to a process. */
bool data_leads(const union ibv_gid *to);

/* Does what is requested at once; it is seen as done by ibv_poll_cq. */
void data_post(struct ibv_qp *qp, const union ibv_gid *to, uint32_t there, const struct ibv_send_wr *wr);

/* What a context and its queue pairs are to have. */
void data_give(struct ibv_context *context);
void data_begin(struct ibv_qp *qp, struct ibv_cq *send_cq, struct ibv_cq *recv_cq);
void data_end(struct ibv_qp *qp);
