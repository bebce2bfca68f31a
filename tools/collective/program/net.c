/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#include "lib.h"
#include "told.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEVICE_PORT    1
#define TIMEOUT        20 /* 4.096 us * 2**20 = 4.3 s; NCCL's default */
#define RETRIES        7
#define PSN_MASK       0xffffff
#define SEND_DEPTH     64
#define RECEIVE_DEPTH  (2 * STEPS)
#define MOST_DONE      16
#define LINE_BYTES     128  /* a chunk is cut at multiples of it */
#define ADAPTIVE_BYTES 8192 /* more than that goes by two work requests; NCCL_IB_AR_THRESHOLD's default */
#define MOST_CONNECTED (2 * (MOST_RANKS - 1) * MOST_CHANNELS)
#define PLACE_BITS     9 /* of a connection, in wr_id */
#define SLOT_BITS      4
#define NO_SLOT        ((1u << SLOT_BITS) - 1)

_Static_assert(MOST_CONNECTED < 1 << PLACE_BITS && STEPS < NO_SLOT, "they fit into wr_id");

static const struct options *options;
static struct ibv_pd *domain;
static struct ibv_cq *completions;
static union ibv_gid gid;
static struct ibv_port_attr port;
static struct connection connections[MOST_CONNECTED];
static uint32_t made;
static uint64_t posts;

void net_open(const struct options *wanted)
{
	options = wanted;
	lib_find();
	struct ibv_context *context = lib_open(options->device);
	if (!context)
		give_up(FAILED, "there is no device %s; `ibv_devices` lists those that are", options->device);
	if (lib.query_port(context, DEVICE_PORT, &port))
		give_up(FAILED, "%s has no port %d", options->device, DEVICE_PORT);
	domain = lib.alloc_pd(context);
	completions = domain ? lib.create_cq(context, MOST_CONNECTED * 2 * STEPS, NULL, NULL, 0) : NULL;
	if (!completions)
		give_up(FAILED, "%s: alloc_pd or create_cq: %s", options->device, strerror(errno));
	if (lib.query_gid(context, DEVICE_PORT, options->gid_index, &gid))
		give_up(FAILED,
			"%s has no GID of index %d; /sys/class/infiniband/%s/ports/1/gids has those that are",
			options->device, options->gid_index, options->device);
}

static struct ibv_mr *registered(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *region =
		memory == MAP_FAILED
			? NULL
			: lib.reg_mr(domain, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!region)
		give_up(FAILED, "%zu bytes cannot be registered with %s: %s; is `ulimit -l` enough?", bytes,
			options->device, strerror(errno));
	return region;
}

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = completions,
		.recv_cq = completions,
		.cap = {.max_send_wr = SEND_DEPTH,
			.max_recv_wr = RECEIVE_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = sizeof(struct clear)},
	};
	struct ibv_qp *qp = lib.create_qp(domain, &init);
	if (!qp)
		give_up(FAILED, "%s makes no queue pair: %s", options->device, strerror(errno));
	return qp;
}

struct connection *net_make(int peer, int channel, bool is_send)
{
	struct connection *connection = &connections[made++];
	size_t chunk = (size_t)options->chunk_bytes;
	connection->peer = peer;
	connection->channel = channel;
	connection->is_send = is_send;
	connection->data = registered(STEPS * chunk);
	connection->clears = registered(STEPS * sizeof(struct clear));
	connection->clear = connection->clears->addr;
	for (int i = 0; i < STEPS; i++)
		connection->slot[i] = (char *)connection->data->addr + (size_t)i * chunk;
	connection->here = (struct end){
		.gid = gid,
		.psn = (uint32_t)now_ns() & PSN_MASK,
		.address = (uintptr_t)connection->clear,
		.rkey = connection->clears->rkey,
	};
	for (int i = 0; i < options->qps; i++) {
		connection->qp[i] = make_qp();
		connection->here.qpn[i] = connection->qp[i]->qp_num;
	}
	return connection;
}

static void go(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	int error = lib.modify_qp(qp, &attr, mask | IBV_QP_STATE);
	if (error)
		give_up(FAILED, "queue pair %u does not go to state %d: %s", qp->qp_num, attr.qp_state,
			strerror(error > 0 ? error : errno));
}

static void connect_qp(struct ibv_qp *qp, const struct connection *connection, uint32_t there)
{
	go(qp,
	   (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
				.port_num = DEVICE_PORT,
				.qp_access_flags = IBV_ACCESS_REMOTE_WRITE},
	   IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	go(qp,
	   (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				.ah_attr = {.is_global = 1,
					    .port_num = DEVICE_PORT,
					    .grh = {.dgid = connection->there.gid,
						    .sgid_index = (uint8_t)options->gid_index,
						    .hop_limit = 255}},
				.path_mtu = port.active_mtu,
				.dest_qp_num = there,
				.rq_psn = connection->there.psn,
				.max_dest_rd_atomic = 1,
				.min_rnr_timer = 12},
	   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		   IBV_QP_MIN_RNR_TIMER);
	go(qp,
	   (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				.timeout = TIMEOUT,
				.retry_cnt = RETRIES,
				.rnr_retry = RETRIES,
				.sq_psn = connection->here.psn,
				.max_rd_atomic = 1},
	   IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void net_connect(struct connection *connection)
{
	for (int i = 0; i < options->qps; i++)
		connect_qp(connection->qp[i], connection, connection->there.qpn[i]);
}

/* Names a work request: its number, its connection, its slot. No two have the same name. */
static uint64_t next_wr_id(const struct connection *connection, uint32_t slot)
{
	return (++posts << PLACE_BITS | (uint64_t)(connection - connections)) << SLOT_BITS | slot;
}

static struct ibv_qp *next_qp(struct connection *connection)
{
	struct ibv_qp *qp = connection->qp[connection->next_qp];
	connection->next_qp = (connection->next_qp + 1) % (uint32_t)options->qps;
	return qp;
}

static int parts(void)
{
	return options->is_split ? options->qps : 1;
}

static void post(const struct connection *connection, struct ibv_qp *qp, struct ibv_send_wr *first)
{
	struct ibv_send_wr *bad;
	int error = ibv_post_send(qp, first, &bad);
	if (error)
		give_up(FAILED, "queue pair %u to rank %d takes no work request: %s", qp->qp_num,
			connection->peer, strerror(error));
}

/* A part of a chunk, by one queue pair: where paths may overtake each other, the immediate data come behind.
 */
static void post_part(struct connection *connection, struct request *request, uint32_t slot,
		      const struct clear *clear, size_t begins, size_t bytes)
{
	struct ibv_qp *qp = next_qp(connection);
	struct ibv_sge data = {.addr = (uintptr_t)connection->slot[slot] + begins,
			       .length = (uint32_t)bytes,
			       .lkey = connection->data->lkey};
	struct ibv_send_wr last = {
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = clear->address + begins, .rkey = (uint32_t)clear->rkey},
	};
	struct ibv_send_wr bulk = last;
	bool is_apart = options->is_adaptive && bytes > ADAPTIVE_BYTES;
	if (is_apart) {
		bulk.opcode = IBV_WR_RDMA_WRITE;
		bulk.send_flags = 0;
		bulk.wr_id = next_wr_id(connection, slot);
		bulk.next = &last;
	}
	struct ibv_send_wr *with_data = is_apart ? &bulk : &last;
	if (bytes) {
		with_data->sg_list = &data;
		with_data->num_sge = 1;
	}
	last.wr_id = next_wr_id(connection, slot);
	request->qpn = qp->qp_num;
	request->wr_id = last.wr_id;
	request->work_requests += is_apart ? 2 : 1;
	post(connection, qp, with_data);
}

struct request *net_send(struct connection *connection, size_t bytes)
{
	uint32_t slot = (uint32_t)(connection->begun % STEPS);
	const struct clear *clear = &connection->clear[slot];
	struct request *request = &connection->request[slot];
	if (atomic_load_explicit(&clear->number, memory_order_acquire) != connection->begun + 1)
		return NULL;
	if (bytes > clear->bytes)
		give_up(FAILED, "rank %d has room for %lu bytes, not for %zu", connection->peer, clear->bytes,
			bytes);
	*request = (struct request){.left = parts(), .posted_ns = now_ns()};
	size_t part = (bytes + (size_t)parts() - 1) / (size_t)parts(), begins = 0;
	part = (part + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
	for (int i = 0; i < parts(); i++) {
		size_t length = bytes - begins < part ? bytes - begins : part;
		post_part(connection, request, slot, clear, begins, length);
		begins += length;
	}
	connection->begun++;
	return request;
}

/* One in STEPS is signalled, so that the send queue's places are given back. */
static void clear_to_send(struct connection *connection, uint32_t slot)
{
	struct clear *clear = &connection->clear[slot];
	clear->address = (uintptr_t)connection->slot[slot];
	clear->bytes = (uint64_t)options->chunk_bytes;
	clear->rkey = connection->data->rkey;
	clear->number = connection->begun + 1;
	struct ibv_sge entry = {
		.addr = (uintptr_t)clear, .length = sizeof(*clear), .lkey = connection->clears->lkey};
	struct ibv_send_wr write = {
		.wr_id = next_wr_id(connection, NO_SLOT),
		.sg_list = &entry,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_INLINE | (slot ? 0 : IBV_SEND_SIGNALED),
		.wr.rdma = {.remote_addr = connection->there.address + slot * sizeof(*clear),
			    .rkey = connection->there.rkey},
	};
	post(connection, connection->qp[0], &write);
}

struct request *net_receive(struct connection *connection)
{
	uint32_t slot = (uint32_t)(connection->begun % STEPS);
	struct request *request = &connection->request[slot];
	*request = (struct request){.left = parts(), .posted_ns = now_ns()};
	for (int i = 0; i < parts(); i++) {
		struct ibv_recv_wr *bad, nothing = {.wr_id = next_wr_id(connection, slot)};
		struct ibv_qp *qp = next_qp(connection);
		int error = ibv_post_recv(qp, &nothing, &bad);
		if (error)
			give_up(FAILED, "queue pair %u from rank %d takes no receive: %s", qp->qp_num,
				connection->peer, strerror(error));
	}
	clear_to_send(connection, slot);
	connection->begun++;
	return request;
}

static const char *status_name(enum ibv_wc_status status)
{
	static const char *const known[] = {
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "flushed, as the queue pair is in error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "no acknowledgement, however often it was sent again",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "the receiver was never ready",
	};
	bool is_known = (size_t)status < sizeof(known) / sizeof(known[0]) && known[status];
	return is_known ? known[status] : "see ibv_wc_status_str";
}

static void take(const struct ibv_wc *done)
{
	struct connection *connection = &connections[done->wr_id >> SLOT_BITS & ((1u << PLACE_BITS) - 1)];
	uint32_t slot = done->wr_id & NO_SLOT;
	if (done->status != IBV_WC_SUCCESS)
		give_up(FAILED, "queue pair %u %s rank %d: status %d, %s", done->qp_num,
			connection->is_send ? "to" : "from", connection->peer, done->status,
			status_name(done->status));
	if (slot == NO_SLOT)
		return;
	struct request *request = &connection->request[slot];
	if (--request->left)
		return;
	request->is_done = true;
	request->done_ns = now_ns();
}

void net_poll(void)
{
	struct ibv_wc done[MOST_DONE];
	int count = ibv_poll_cq(completions, MOST_DONE, done);
	if (count < 0)
		give_up(FAILED, "%s: poll_cq: %s", options->device, strerror(errno));
	for (int i = 0; i < count; i++)
		take(&done[i]);
}

void net_close(void)
{
	for (uint32_t i = 0; i < made; i++)
		for (int each = 0; each < options->qps; each++)
			lib.destroy_qp(connections[i].qp[each]);
}
