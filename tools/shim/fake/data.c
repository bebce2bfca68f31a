/* SPDX-License-Identifier: Apache-2.0 */
/* A process writes into another's memory by its number, which is in its GID, and tells it of immediate data
 * by a datagram. One thread of a process at a time.
 */
#include "data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#undef ibv_reg_mr

#define EXPORTED    __attribute__((visibility("default")))
#define MOST_QPS    4096
#define MOST_POSTED 64
#define MOST_DONE   4096
#define AGAIN_US    50

/* What comes with immediate data. */
struct arrival {
	uint32_t qpn;
	uint32_t immediate;
	uint32_t bytes;
};

struct entry {
	struct ibv_qp *qp;
	struct ibv_cq *send_cq, *recv_cq;
	uint64_t receives[MOST_POSTED];
	uint32_t posted, taken;
};

struct queue {
	struct ibv_cq cq;
	struct ibv_wc done[MOST_DONE];
	uint32_t added, taken;
};

static struct entry entries[MOST_QPS];
static int inbox = -1;
static long requests_left = -1;

static const uint8_t prefix[8] = {0xfd, 'f', 'a', 'k', 'e'};

static socklen_t address_of(int pid, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "fake-verbs-%d", pid);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int pid_of(const union ibv_gid *gid)
{
	int pid;
	memcpy(&pid, gid->raw + sizeof(prefix), sizeof(pid));
	return pid;
}

bool data_leads(const union ibv_gid *to)
{
	return !memcmp(to->raw, prefix, sizeof(prefix));
}

EXPORTED int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	int pid = getpid();
	(void)context;
	(void)port;
	memset(gid, 0, sizeof(*gid));
	memcpy(gid->raw, prefix, sizeof(prefix));
	memcpy(gid->raw + sizeof(prefix), &pid, sizeof(pid));
	return index ? -1 : 0;
}

EXPORTED struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access)
{
	struct ibv_mr *region = calloc(1, sizeof(*region));
	(void)access;
	*region = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = address, .length = bytes};
	return region;
}

EXPORTED struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *own,
				      struct ibv_comp_channel *channel, int vector)
{
	struct queue *queue = calloc(1, sizeof(*queue));
	struct sockaddr_un address;
	(void)channel;
	(void)vector;
	queue->cq = (struct ibv_cq){.context = context, .cq_context = own, .cqe = entries};
	if (inbox < 0) {
		const char *fails_at = getenv("FAKE_FAILS_AT");
		requests_left = fails_at ? atol(fails_at) : -1;
		inbox = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		socklen_t length = address_of(getpid(), &address);
		if (bind(inbox, (struct sockaddr *)&address, length))
			abort();
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	}
	return &queue->cq;
}

static struct entry *entry_of(uint32_t qpn)
{
	struct entry *entry = &entries[qpn % MOST_QPS];
	return entry->qp && entry->qp->qp_num == qpn ? entry : NULL;
}

void data_begin(struct ibv_qp *qp, struct ibv_cq *send_cq, struct ibv_cq *recv_cq)
{
	entries[qp->qp_num % MOST_QPS] = (struct entry){.qp = qp, .send_cq = send_cq, .recv_cq = recv_cq};
}

void data_end(struct ibv_qp *qp)
{
	struct entry *entry = entry_of(qp->qp_num);
	if (entry)
		entry->qp = NULL;
}

static void add(struct ibv_cq *cq, struct ibv_wc done)
{
	struct queue *queue = (struct queue *)cq;
	if (queue->added - queue->taken == MOST_DONE)
		abort();
	queue->done[queue->added++ % MOST_DONE] = done;
}

/* Who is written to has posted a receive before, as NCCL does. */
static void take_in(void)
{
	struct arrival arrival;
	while (inbox >= 0 && recv(inbox, &arrival, sizeof(arrival), 0) == sizeof(arrival)) {
		struct entry *entry = entry_of(arrival.qpn);
		if (!entry)
			continue;
		if (entry->taken == entry->posted)
			abort();
		add(entry->recv_cq, (struct ibv_wc){.wr_id = entry->receives[entry->taken++ % MOST_POSTED],
						    .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
						    .wc_flags = IBV_WC_WITH_IMM,
						    .imm_data = arrival.immediate,
						    .byte_len = arrival.bytes,
						    .qp_num = arrival.qpn});
	}
}

/* A process that does not take its datagrams is waited for, and ours are taken meanwhile: it may wait for
 * that. */
static int tell(int pid, struct arrival arrival)
{
	struct sockaddr_un address;
	socklen_t length = address_of(pid, &address);
	while (sendto(inbox, &arrival, sizeof(arrival), 0, (struct sockaddr *)&address, length) < 0) {
		if (errno != EAGAIN)
			return errno;
		take_in();
		usleep(AGAIN_US);
	}
	return 0;
}

/* The last word is written when all before it is there, as by PCIe. */
static int write_at(int pid, uint64_t from, uint64_t to, size_t bytes)
{
	size_t first = bytes > sizeof(uint64_t) ? bytes - sizeof(uint64_t) : bytes, at = 0;
	for (size_t length = first; length; length = bytes - at) {
		struct iovec here = {(void *)(uintptr_t)(from + at), length},
			     there = {(void *)(uintptr_t)(to + at), length};
		if (process_vm_writev(pid, &here, 1, &there, 1, 0) != (ssize_t)length)
			return errno;
		at += length;
	}
	return 0;
}

static int written(int pid, uint32_t there, const struct ibv_send_wr *wr)
{
	struct arrival arrival = {.qpn = there, .immediate = wr->imm_data};
	if (!requests_left)
		return EIO;
	requests_left -= requests_left > 0;
	for (int i = 0; i < wr->num_sge; i++) {
		int error = write_at(pid, wr->sg_list[i].addr, wr->wr.rdma.remote_addr + arrival.bytes,
				     wr->sg_list[i].length);
		if (error)
			return error;
		arrival.bytes += wr->sg_list[i].length;
	}
	return wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? tell(pid, arrival) : 0;
}

void data_post(struct ibv_qp *qp, const union ibv_gid *to, uint32_t there, const struct ibv_send_wr *wr)
{
	const struct entry *entry = entry_of(qp->qp_num);
	for (; entry && wr; wr = wr->next) {
		int error = written(pid_of(to), there, wr);
		struct ibv_wc done = {.wr_id = wr->wr_id,
				      .status = error ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS,
				      .opcode = IBV_WC_RDMA_WRITE,
				      .qp_num = qp->qp_num};
		if (error || wr->send_flags & IBV_SEND_SIGNALED)
			add(entry->send_cq, done);
	}
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct entry *entry = entry_of(qp->qp_num);
	for (; wr; wr = wr->next) {
		if (!entry || entry->posted - entry->taken == MOST_POSTED) {
			*bad = wr;
			return ENOMEM;
		}
		entry->receives[entry->posted++ % MOST_POSTED] = wr->wr_id;
	}
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *done)
{
	struct queue *queue = (struct queue *)cq;
	int count = 0;
	take_in();
	for (; count < most && queue->taken != queue->added; count++)
		done[count] = queue->done[queue->taken++ % MOST_DONE];
	return count;
}

void data_give(struct ibv_context *context)
{
	context->ops.post_recv = post_recv;
	context->ops.poll_cq = poll_cq;
}
