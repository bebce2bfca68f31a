/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What programs of named cgroups call in libibverbs and in NCCL. Compiled by bcc on the host. It reads
 * nothing of the kernel's but the registers of the caller, so that headers of another kernel do.
 *
 * IN_NAMED_CGROUP is put there by who compiles it: has_ancestor(n) for each depth at which there may be a
 * named cgroup.
 */
#include <uapi/linux/ptrace.h>

enum kind {
	QP_CREATED,
	QP_CHANGED,
	QP_DESTROYED,
	CALL,
	COMM_MADE,
	COMM_GONE
};
enum count {
	LOST,
	UNMATCHED,
	UNREADABLE,
	REFUSED,
	COUNTS
};

/* Of <infiniband/verbs.h> of rdma-core, whose layout cannot change. */
#define QP_NUM_AT          52
#define DEVICE_NAME_AT     24
#define ATTR_DEST_QPN_AT   28
#define ATTR_DGID_AT       56
#define ATTR_SGID_INDEX_AT 76
#define ATTR_PORT_AT       86
#define MASK_STATE         0x1
#define MASK_AV            0x80
#define MASK_DEST_QPN      0x100000

#define DEVICE_BYTES 64
#define ID_BYTES     128
#define IN_PROGRESS  7

struct qp {
	u32 kind, pid;
	u64 time_ns;
	u32 qpn, state, dest_qpn;
	u8 port, gid_index, has_path, has_dest;
	u8 dgid[16];
	char device[DEVICE_BYTES];
};

struct call {
	u32 kind, pid;
	u64 time_ns;
	u64 lasted_ns, count, comm;
	u32 tid, function, datatype;
	s32 peer;
};

struct comm {
	u32 kind, pid;
	u64 time_ns;
	u64 comm;
	s32 ranks, rank;
	u8 id[ID_BYTES];
};

BPF_HASH(named_cgroups, u64, u8, 256);
BPF_HASH(named_programs, u32, u8, 16384);
BPF_ARRAY(counts, u64, COUNTS);
BPF_RINGBUF_OUTPUT(events, 256);

/* What a thread is in the middle of. One that ends there leaves its entry, so the oldest are given up. */
BPF_TABLE("lru_hash", u64, struct qp, qps_under_way, 4096);
BPF_TABLE("lru_hash", u64, struct call, calls_under_way, 8192);
BPF_TABLE("lru_hash", u64, struct comm, comms_under_way, 4096);

static inline void add(u32 which)
{
	u64 *count = counts.lookup(&which);
	if (count)
		__sync_fetch_and_add(count, 1);
}

static inline int has_ancestor(int level)
{
	u64 id = bpf_get_current_ancestor_cgroup_id(level);
	return named_cgroups.lookup(&id) != 0;
}

static inline int is_named(void)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	return (IN_NAMED_CGROUP) || named_programs.lookup(&pid);
}

static inline int read_qp(struct qp *qp, const void *from)
{
	const void *context = 0, *device = 0;
	return bpf_probe_read_user(&qp->qpn, sizeof(qp->qpn), from + QP_NUM_AT) ||
	       bpf_probe_read_user(&context, sizeof(context), from) ||
	       bpf_probe_read_user(&device, sizeof(device), context) ||
	       bpf_probe_read_user(qp->device, sizeof(qp->device), device + DEVICE_NAME_AT);
}

static inline void begin_qp(struct qp *qp, const void *from)
{
	u64 thread = bpf_get_current_pid_tgid();
	qp->pid = thread >> 32;
	qp->time_ns = bpf_ktime_get_ns();
	if (read_qp(qp, from)) {
		add(UNREADABLE);
		return;
	}
	qps_under_way.update(&thread, qp);
}

static inline int end_qp(struct pt_regs *ctx)
{
	if (!is_named())
		return 0;
	u64 thread = bpf_get_current_pid_tgid();
	struct qp *qp = qps_under_way.lookup(&thread);
	if (!qp)
		return 0;
	if ((int)PT_REGS_RC(ctx) != 0)
		add(REFUSED);
	else if (events.ringbuf_output(qp, sizeof(*qp), 0))
		add(LOST);
	qps_under_way.delete(&thread);
	return 0;
}

int ibv_create_qp_end(struct pt_regs *ctx)
{
	const void *made = (const void *)PT_REGS_RC(ctx);
	struct qp qp = {.kind = QP_CREATED};
	if (!is_named())
		return 0;
	if (!made) {
		add(REFUSED);
		return 0;
	}
	qp.pid = bpf_get_current_pid_tgid() >> 32;
	qp.time_ns = bpf_ktime_get_ns();
	if (read_qp(&qp, made))
		add(UNREADABLE);
	else if (events.ringbuf_output(&qp, sizeof(qp), 0))
		add(LOST);
	return 0;
}

int ibv_modify_qp_begin(struct pt_regs *ctx)
{
	const void *attr = (const void *)PT_REGS_PARM2(ctx);
	u32 mask = PT_REGS_PARM3(ctx);
	struct qp qp = {.kind = QP_CHANGED};
	int failed;
	if (!(mask & MASK_STATE) || !is_named())
		return 0;
	failed = bpf_probe_read_user(&qp.state, sizeof(qp.state), attr);
	if (mask & MASK_DEST_QPN) {
		qp.has_dest = 1;
		failed |= bpf_probe_read_user(&qp.dest_qpn, sizeof(qp.dest_qpn), attr + ATTR_DEST_QPN_AT);
	}
	if (mask & MASK_AV) {
		qp.has_path = 1;
		failed |= bpf_probe_read_user(qp.dgid, sizeof(qp.dgid), attr + ATTR_DGID_AT);
		failed |= bpf_probe_read_user(&qp.gid_index, sizeof(qp.gid_index), attr + ATTR_SGID_INDEX_AT);
		failed |= bpf_probe_read_user(&qp.port, sizeof(qp.port), attr + ATTR_PORT_AT);
	}
	if (failed)
		add(UNREADABLE);
	else
		begin_qp(&qp, (const void *)PT_REGS_PARM1(ctx));
	return 0;
}

int ibv_modify_qp_end(struct pt_regs *ctx)
{
	return end_qp(ctx);
}

int ibv_destroy_qp_begin(struct pt_regs *ctx)
{
	struct qp qp = {.kind = QP_DESTROYED};
	if (is_named())
		begin_qp(&qp, (const void *)PT_REGS_PARM1(ctx));
	return 0;
}

int ibv_destroy_qp_end(struct pt_regs *ctx)
{
	return end_qp(ctx);
}

static inline int begin_call(u32 function, u64 count, u32 datatype, s32 peer, u64 comm)
{
	u64 thread = bpf_get_current_pid_tgid();
	struct call call = {.kind = CALL,
			    .pid = thread >> 32,
			    .tid = (u32)thread,
			    .time_ns = bpf_ktime_get_ns(),
			    .count = count,
			    .comm = comm,
			    .function = function,
			    .datatype = datatype,
			    .peer = peer};
	calls_under_way.update(&thread, &call);
	return 0;
}

int nccl_call_end(struct pt_regs *ctx)
{
	if (!is_named())
		return 0;
	u64 thread = bpf_get_current_pid_tgid();
	int result = PT_REGS_RC(ctx);
	struct call *call = calls_under_way.lookup(&thread);
	if (!call) {
		add(UNMATCHED);
		return 0;
	}
	call->lasted_ns = bpf_ktime_get_ns() - call->time_ns;
	if (result != 0 && result != IN_PROGRESS)
		add(REFUSED);
	else if (events.ringbuf_output(call, sizeof(*call), BPF_RB_NO_WAKEUP))
		add(LOST);
	calls_under_way.delete(&thread);
	return 0;
}

/* The numbers of functions are places in FUNCTIONS of cwdp.shared.bus.collectives. */
int ncclAllGather_begin(struct pt_regs *ctx)
{
	return is_named() ? begin_call(1, PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), -1, PT_REGS_PARM5(ctx)) : 0;
}

int ncclAllReduce_begin(struct pt_regs *ctx)
{
	return is_named() ? begin_call(2, PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), -1, PT_REGS_PARM6(ctx)) : 0;
}

int ncclBroadcast_begin(struct pt_regs *ctx)
{
	return is_named() ? begin_call(4, PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), PT_REGS_PARM5(ctx),
				       PT_REGS_PARM6(ctx))
			  : 0;
}

int ncclRecv_begin(struct pt_regs *ctx)
{
	return is_named() ? begin_call(6, PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx),
				       PT_REGS_PARM5(ctx))
			  : 0;
}

/* Its seventh argument is on the stack, above the return address. */
int ncclReduce_begin(struct pt_regs *ctx)
{
	u64 comm = 0;
	if (!is_named())
		return 0;
	if (bpf_probe_read_user(&comm, sizeof(comm), (const void *)(PT_REGS_SP(ctx) + 8))) {
		add(UNREADABLE);
		return 0;
	}
	return begin_call(7, PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), PT_REGS_PARM6(ctx), comm);
}

int ncclReduceScatter_begin(struct pt_regs *ctx)
{
	return is_named() ? begin_call(8, PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx), -1, PT_REGS_PARM6(ctx)) : 0;
}

int ncclSend_begin(struct pt_regs *ctx)
{
	return is_named() ? begin_call(10, PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx),
				       PT_REGS_PARM5(ctx))
			  : 0;
}

/* ncclCommInitRank and ncclCommInitRankConfig: the ID is passed by value, so it is on the stack. */
int ncclCommInitRank_begin(struct pt_regs *ctx)
{
	u64 thread = bpf_get_current_pid_tgid();
	if (!is_named())
		return 0;
	struct comm comm = {.kind = COMM_MADE,
			    .pid = thread >> 32,
			    .comm = PT_REGS_PARM1(ctx),
			    .ranks = PT_REGS_PARM2(ctx),
			    .rank = PT_REGS_PARM3(ctx)};
	if (bpf_probe_read_user(comm.id, sizeof(comm.id), (const void *)(PT_REGS_SP(ctx) + 8)))
		add(UNREADABLE);
	else
		comms_under_way.update(&thread, &comm);
	return 0;
}

int ncclCommInitRank_end(struct pt_regs *ctx)
{
	if (!is_named())
		return 0;
	u64 thread = bpf_get_current_pid_tgid();
	int result = PT_REGS_RC(ctx);
	struct comm *comm = comms_under_way.lookup(&thread);
	if (!comm) {
		add(UNMATCHED);
		return 0;
	}
	comm->time_ns = bpf_ktime_get_ns();
	if (result != 0 && result != IN_PROGRESS)
		add(REFUSED);
	else if (bpf_probe_read_user(&comm->comm, sizeof(comm->comm), (const void *)comm->comm))
		add(UNREADABLE);
	else if (events.ringbuf_output(comm, sizeof(*comm), 0))
		add(LOST);
	comms_under_way.delete(&thread);
	return 0;
}

/* ncclCommDestroy and ncclCommAbort. */
int ncclCommDestroy_begin(struct pt_regs *ctx)
{
	if (!is_named())
		return 0;
	struct comm comm = {.kind = COMM_GONE,
			    .pid = bpf_get_current_pid_tgid() >> 32,
			    .time_ns = bpf_ktime_get_ns(),
			    .comm = PT_REGS_PARM1(ctx)};
	if (events.ringbuf_output(&comm, sizeof(comm), 0))
		add(LOST);
	return 0;
}
