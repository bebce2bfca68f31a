/* SPDX-License-Identifier: Apache-2.0 */
#include "ends.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE_PORT 1
#define TIMEOUT     20 /* 4.096 us * 2**20 = 4.3 s; NCCL's default */
#define RETRIES     7
#define POLL_US     500

struct transfer transfer;

void fail(const char *what)
{
	printf("failed: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void make_pair(struct pair *pair, struct ibv_pd *domain, const union ibv_gid *gid)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = transfer.completions,
		.recv_cq = transfer.completions,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	pair->qp = lib.create_qp(domain, &init);
	if (!pair->qp)
		fail("create_qp");
	pair->here = (struct end){.qpn = pair->qp->qp_num,
				  .rkey = transfer.memory->rkey,
				  .address = (uintptr_t)transfer.memory->addr,
				  .gid = *gid};
}

void ends_make(void)
{
	union ibv_gid gid;
	struct ibv_context *context = lib_open(transfer.device);
	if (!context)
		fail(transfer.device);
	struct ibv_pd *domain = lib.alloc_pd(context);
	transfer.completions = lib.create_cq(context, (int)transfer.count * DEPTH, NULL, NULL, 0);
	transfer.memory = lib.reg_mr(domain, calloc(1, transfer.bytes), transfer.bytes,
				     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!transfer.completions || !transfer.memory)
		fail("create_cq or reg_mr");
	if (lib.query_gid(context, DEVICE_PORT, transfer.gid_index, &gid))
		fail("query_gid");
	for (uint32_t i = 0; i < transfer.count; i++)
		make_pair(&transfer.pairs[i], domain, &gid);
}

struct ibv_ah_attr ends_path(const struct pair *pair, uint32_t flow_label)
{
	return (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = DEVICE_PORT,
		.grh = {.dgid = pair->there.gid,
			.sgid_index = transfer.gid_index,
			.flow_label = flow_label,
			.hop_limit = 64},
	};
}

static void go(struct pair *pair, struct ibv_qp_attr attr, int mask)
{
	errno = lib.modify_qp(pair->qp, &attr, mask | IBV_QP_STATE);
	if (errno)
		fail("modify_qp");
}

void ends_connect(struct pair *pair)
{
	go(pair,
	   (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
				.port_num = DEVICE_PORT,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE},
	   IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	go(pair,
	   (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				.ah_attr = ends_path(pair, transfer.flow_label),
				.path_mtu = IBV_MTU_4096,
				.dest_qp_num = pair->there.qpn,
				.max_dest_rd_atomic = 1,
				.min_rnr_timer = 12},
	   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		   IBV_QP_MIN_RNR_TIMER);
	go(pair,
	   (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				.timeout = TIMEOUT,
				.retry_cnt = RETRIES,
				.rnr_retry = RETRIES,
				.max_rd_atomic = 1},
	   IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void ends_post(uint32_t place)
{
	struct pair *pair = &transfer.pairs[place];
	struct ibv_sge part = {
		.addr = pair->here.address, .length = transfer.bytes, .lkey = transfer.memory->lkey};
	struct ibv_send_wr *bad,
		message = {
			.wr_id = place,
			.sg_list = &part,
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = {.remote_addr = pair->there.address, .rkey = pair->there.rkey},
		};
	errno = ibv_post_send(pair->qp, &message, &bad);
	if (errno)
		fail("post_send");
	pair->under_way++;
}

uint32_t ends_complete(void)
{
	struct ibv_wc completion;
	int count = ibv_poll_cq(transfer.completions, 1, &completion);
	if (count < 0)
		fail("poll_cq");
	if (count && completion.status != IBV_WC_SUCCESS) {
		printf("failed: a message of queue pair %llu: status %d\n",
		       (unsigned long long)completion.wr_id, completion.status);
		exit(1);
	}
	if (count)
		transfer.pairs[completion.wr_id].under_way--;
	else
		usleep(POLL_US);
	return (uint32_t)count;
}
