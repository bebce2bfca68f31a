/* SPDX-License-Identifier: Apache-2.0 */
/* One end of RDMA WRITEs over reliable queue pairs, by verbs that are looked up as NCCL does.
 *
 *   as_nccl DEVICE GID_INDEX PORT MESSAGES BYTES FLOW_LABEL PAIRS [ADDRESS]
 *
 * Without an address it listens at PORT of TCP, where the ends meet, and is written to; the flow label is
 * that of the other end. Without messages it stays until it is stopped. Ends with a line on standard output:
 * how many messages were written, or what failed.
 */
#include "lib.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEVICE_PORT 1
#define DEPTH       4 /* messages under way of each queue pair */
#define MOST_PAIRS  4096
#define TIMEOUT     20 /* 4.096 us * 2**20 = 4.3 s; NCCL's default */
#define RETRIES     7
#define POLL_US     500

/* What an end tells the other. */
struct end {
	uint32_t qpn, rkey;
	uint64_t address;
	union ibv_gid gid;
};

struct pair {
	struct ibv_qp *qp;
	struct end here, there;
	uint32_t under_way;
};

struct transfer {
	const char *device, *address;
	uint8_t gid_index;
	uint16_t port;
	uint64_t messages;
	uint32_t bytes, flow_label, count;
	struct ibv_cq *completions;
	struct ibv_mr *memory;
	struct pair pairs[MOST_PAIRS];
};

static struct transfer transfer;

static void fail(const char *what)
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

static void make(void)
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

static void go(struct pair *pair, struct ibv_qp_attr attr, int mask)
{
	errno = lib.modify_qp(pair->qp, &attr, mask | IBV_QP_STATE);
	if (errno)
		fail("modify_qp");
}

static void connect_pair(struct pair *pair)
{
	struct ibv_ah_attr path = {
		.is_global = 1,
		.port_num = DEVICE_PORT,
		.grh = {.dgid = pair->there.gid,
			.sgid_index = transfer.gid_index,
			.flow_label = transfer.flow_label,
			.hop_limit = 64},
	};
	go(pair,
	   (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
				.port_num = DEVICE_PORT,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE},
	   IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	go(pair,
	   (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				.ah_attr = path,
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

static int met(void)
{
	const int yes = 1;
	const char *address = transfer.address ? transfer.address : "127.0.0.1";
	struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(transfer.port)};
	int sock = socket(AF_INET, SOCK_STREAM, 0);
	inet_pton(AF_INET, address, &where.sin_addr);
	if (transfer.address) {
		if (connect(sock, (struct sockaddr *)&where, sizeof(where)))
			fail("connect");
		return sock;
	}
	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(sock, (struct sockaddr *)&where, sizeof(where)) || listen(sock, 1))
		fail("listen");
	return accept(sock, NULL, NULL);
}

static void exchange(int sock, const struct end *here, struct end *there)
{
	if (write(sock, here, sizeof(*here)) != sizeof(*here) ||
	    recv(sock, there, sizeof(*there), MSG_WAITALL) != sizeof(*there))
		fail("the other end is gone");
}

static void post(uint32_t place)
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

/* Each queue pair has as many messages under way as it may, those of all together counted. */
static void write_all(void)
{
	uint64_t posted = 0, done = 0;
	struct ibv_wc completion;
	while (done < transfer.messages) {
		for (uint32_t i = 0; i < transfer.count && posted < transfer.messages; i++)
			for (; transfer.pairs[i].under_way < DEPTH && posted < transfer.messages; posted++)
				post(i);
		int count = ibv_poll_cq(transfer.completions, 1, &completion);
		if (count < 0 || (count && completion.status != IBV_WC_SUCCESS)) {
			printf("failed: message %llu: status %d\n", (unsigned long long)done,
			       completion.status);
			exit(1);
		}
		if (count)
			transfer.pairs[completion.wr_id].under_way--;
		else
			usleep(POLL_US);
		done += (uint64_t)count;
	}
}

int main(int argc, char **argv)
{
	if (argc < 8) {
		fprintf(stderr,
			"usage: as_nccl DEVICE GID_INDEX PORT MESSAGES BYTES FLOW_LABEL PAIRS [ADDRESS]\n");
		return 2;
	}
	struct end unused;
	transfer.device = argv[1];
	transfer.gid_index = (uint8_t)atoi(argv[2]);
	transfer.port = (uint16_t)atoi(argv[3]);
	transfer.messages = strtoull(argv[4], NULL, 10);
	transfer.bytes = (uint32_t)atoi(argv[5]);
	transfer.flow_label = argc > 8 ? (uint32_t)atoi(argv[6]) : 0;
	transfer.count = (uint32_t)atoi(argv[7]) % (MOST_PAIRS + 1);
	transfer.address = argv[8];
	signal(SIGPIPE, SIG_IGN);
	lib_find();
	make();
	int sock = met();
	for (uint32_t i = 0; i < transfer.count; i++)
		exchange(sock, &transfer.pairs[i].here, &transfer.pairs[i].there);
	for (uint32_t i = 0; i < transfer.count; i++)
		connect_pair(&transfer.pairs[i]);
	exchange(sock, &transfer.pairs[0].here, &unused); /* both are ready */
	if (!transfer.messages)
		pause();
	if (transfer.address)
		write_all();
	exchange(sock, &transfer.pairs[0].here, &unused); /* all is written */
	printf("%llu messages\n", (unsigned long long)transfer.messages);
	return 0;
}
