/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's calls, written into the ring. A call of NCCL's never fails for it, never waits, and finds errno as
 * it was.
 *
 * The handle of a collective or point-to-point call is its name, so there is nothing to free: NCCL stops it
 * once it is enqueued, and what is done for it comes later, from other threads. Operations and steps have a
 * slot each. A step is told when it is done, with what it waited for; the states between are only timed.
 */
#include "agent.h"
#include "calls.h"
#include "posted.h"
#include "slots.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define EVENTS  (NCCL_COLL | NCCL_P2P | NCCL_PROXY_OP | NCCL_PROXY_STEP)
#define LOOK_NS 1000000000ull

#define KIND_SHIFT     60
#define FUNCTION_SHIFT 56
#define COMM_SHIFT     44
#define KIND_BITS      ((1ull << KIND_SHIFT) - 1)
#define COMM_BITS      0xfffull
#define SEQ_BITS       ((1ull << COMM_SHIFT) - 1)

/* Kinds of handles. */
enum {
	CALL = 1,
	SLOT,
	UNFOLLOWED, /* children may ask for a parent where there is nothing to tell of it */
};

static _Atomic uint64_t p2p_calls[CWDP_NCCL_COMMS][CWDP_NCCL_FUNCTIONS];
static _Atomic uint32_t next_comm;
static _Atomic uint64_t look_ns;

/* The name of the step that this thread hands to the network; 0 where there is none. */
static _Thread_local uint64_t step_under_way;

static uint64_t now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void count(_Atomic uint64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void *handle(uint64_t kind, uint64_t name)
{
	return (void *)(uintptr_t)(kind << KIND_SHIFT | name);
}

static uint64_t kind_of(const void *handle)
{
	return (uint64_t)(uintptr_t)handle >> KIND_SHIFT;
}

static uint64_t name_of(const void *handle)
{
	return (uint64_t)(uintptr_t)handle & KIND_BITS;
}

/* A context is a place in the ring's communicators and 1; it may be another process's. */
static uint16_t comm_of(const void *context)
{
	uintptr_t place = (uintptr_t)context;
	return place && place <= CWDP_NCCL_COMMS ? (uint16_t)(place - 1) : CWDP_NCCL_NO_COMM;
}

static void write_record(struct cwdp_nccl_ring *ring, const struct cwdp_nccl_record *record)
{
	const size_t rest = offsetof(struct cwdp_nccl_record, begin_ns);
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	do {
		if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) >= CWDP_NCCL_RECORDS) {
			count(&ring->dropped);
			return;
		}
	} while (!atomic_compare_exchange_weak_explicit(&ring->head, &head, head + 1, memory_order_relaxed,
							memory_order_relaxed));
	struct cwdp_nccl_record *into = &ring->record[head % CWDP_NCCL_RECORDS];
	memcpy((char *)into + rest, (const char *)record + rest, sizeof(*into) - rest);
	atomic_store_explicit(&into->place, head + 1, memory_order_release);
}

/* Up to version 3 only its calls say which communicator it is. */
static void name_comm(struct cwdp_nccl_ring *ring, uint16_t comm, const struct call *call, int rank)
{
	struct cwdp_nccl_comm *named = &ring->comm[comm];
	if (call->comm_hash && !atomic_load_explicit(&named->id, memory_order_relaxed)) {
		atomic_store(&named->rank, rank);
		atomic_store(&named->id, call->comm_hash);
	}
}

static void *begin_call(struct cwdp_nccl_ring *ring, uint16_t comm, const struct nccl_event *event,
			struct call call)
{
	if (comm == CWDP_NCCL_NO_COMM)
		return handle(UNFOLLOWED, 0);
	name_comm(ring, comm, &call, event->rank);
	if (event->type == NCCL_P2P)
		call.seq =
			atomic_fetch_add_explicit(&p2p_calls[comm][call.function], 1, memory_order_relaxed);
	struct cwdp_nccl_record record = {
		.begin_ns = now(),
		.seq = call.seq & SEQ_BITS,
		.bytes = call.bytes,
		.comm = comm,
		.kind = CWDP_NCCL_CALL,
		.function = call.function,
		.peer = call.peer,
		.pid = ring->pid,
	};
	write_record(ring, &record);
	uint64_t due = atomic_load_explicit(&look_ns, memory_order_relaxed);
	if (record.begin_ns >= due &&
	    atomic_compare_exchange_strong(&look_ns, &due, record.begin_ns + LOOK_NS))
		agent_look();
	return handle(CALL,
		      (uint64_t)call.function << FUNCTION_SHIFT | (uint64_t)comm << COMM_SHIFT | record.seq);
}

static void *begin_op(struct cwdp_nccl_ring *ring, uint16_t comm, const struct nccl_event *event)
{
	struct slot *slot = slot_take();
	if (!slot) {
		count(&ring->no_slot);
		return NULL;
	}
	uint64_t parent = (uint64_t)(uintptr_t)event->parent;
	slot->record = (struct cwdp_nccl_record){
		.begin_ns = now(),
		.comm = comm,
		.kind = CWDP_NCCL_OP_BEGIN,
		.channel = event->proxy_op.channel,
		.is_send = !!event->proxy_op.is_send,
		.peer = event->proxy_op.peer,
		.step = event->proxy_op.steps,
		.pid = event->proxy_op.pid,
	};
	if (kind_of(event->parent) == CALL) {
		slot->record.function = (uint8_t)(parent >> FUNCTION_SHIFT & 0xf);
		slot->record.comm = (uint16_t)(parent >> COMM_SHIFT & COMM_BITS);
		slot->record.seq = parent & SEQ_BITS;
	}
	slot->peer_ns = slot->peer_since_ns = 0;
	write_record(ring, &slot->record);
	slot->record.kind = CWDP_NCCL_OP_END;
	return handle(SLOT, slot_name(slot));
}

static void *begin_step(struct cwdp_nccl_ring *ring, const struct nccl_event *event)
{
	if (kind_of(event->parent) != SLOT)
		return handle(UNFOLLOWED, 0);
	const struct slot *op = slot_named(name_of(event->parent));
	if (!op) {
		count(&ring->stale);
		return handle(UNFOLLOWED, 0);
	}
	struct slot *slot = slot_take();
	if (!slot) {
		count(&ring->no_slot);
		return NULL;
	}
	slot->record = op->record;
	slot->record.kind = CWDP_NCCL_STEP;
	slot->record.step = event->proxy_step.step;
	slot->record.bytes = 0;
	slot->op = name_of(event->parent);
	slot->waits_for = CWDP_NCCL_WAIT_POST;
	slot->since_ns = slot->record.begin_ns = now();
	return handle(SLOT, slot_name(slot));
}

static void *begin(void *context, const struct nccl_event *event, uint64_t type,
		   struct call (*call)(const struct nccl_event *event))
{
	struct cwdp_nccl_ring *ring = atomic_load_explicit(&nccl_ring, memory_order_acquire);
	if (!ring)
		return NULL;
	switch (type) {
	case NCCL_COLL:
	case NCCL_P2P:
		return begin_call(ring, comm_of(context), event, call(event));
	case NCCL_PROXY_OP:
		return begin_op(ring, comm_of(context), event);
	case NCCL_PROXY_STEP:
		return begin_step(ring, event);
	default:
		return handle(UNFOLLOWED, 0);
	}
}

static int start_v1(void *context, void **into, const struct nccl_event *event)
{
	if (into)
		*into = event ? begin(context, event, event->type, call_v1) : NULL;
	return 0;
}

static int start_v2(void *context, void **into, const struct nccl_event *event)
{
	if (into)
		*into = event ? begin(context, event, event->type, call_v2) : NULL;
	return 0;
}

static int start_v4(void *context, void **into, const struct nccl_event *event)
{
	if (into)
		*into = event ? begin(context, event, event->type, call_v4) : NULL;
	return 0;
}

static int start_v5(void *context, void **into, const struct nccl_event *event)
{
	if (into)
		*into = event ? begin(context, event, event->wide_type, call_v4) : NULL;
	return 0;
}

/* The slot of a handle; NULL where it has none, or none any more. */
static struct slot *slot_of(struct cwdp_nccl_ring *ring, const void *handle)
{
	if (!ring || kind_of(handle) != SLOT)
		return NULL;
	struct slot *slot = slot_named(name_of(handle));
	if (!slot)
		count(&ring->stale);
	return slot;
}

static void wait_for(struct slot *slot, enum cwdp_nccl_wait next, uint64_t at_ns)
{
	slot->record.wait_ns[slot->waits_for] += at_ns - slot->since_ns;
	slot->since_ns = at_ns;
	slot->waits_for = next;
}

static uint64_t peer_ns(const struct slot *op, uint64_t at_ns)
{
	return op->peer_ns + (op->peer_since_ns ? at_ns - op->peer_since_ns : 0);
}

/* NCCL looks at one chunk of an operation at a time: those behind it are said to wait for the GPU while it
 * waits for the peer, though they do so too.
 */
static void share_wait(struct slot *slot, enum cwdp_nccl_wait next, uint64_t at_ns)
{
	struct slot *op = slot_named(slot->op);
	uint64_t *waited_ns = slot->record.wait_ns;
	if (!op)
		return;
	if (next == CWDP_NCCL_WAIT_GPU)
		slot->peer_ns = peer_ns(op, at_ns);
	if (next == CWDP_NCCL_WAIT_PEER) {
		uint64_t behind_ns = peer_ns(op, at_ns) - slot->peer_ns;
		if (behind_ns > waited_ns[CWDP_NCCL_WAIT_GPU])
			behind_ns = waited_ns[CWDP_NCCL_WAIT_GPU];
		waited_ns[CWDP_NCCL_WAIT_GPU] -= behind_ns;
		waited_ns[CWDP_NCCL_WAIT_PEER] += behind_ns;
		op->peer_since_ns = at_ns;
	}
	if (next == CWDP_NCCL_WAIT_WIRE && op->peer_since_ns) {
		op->peer_ns = peer_ns(op, at_ns);
		op->peer_since_ns = 0;
	}
}

static int stop(void *handle)
{
	struct cwdp_nccl_ring *ring = atomic_load_explicit(&nccl_ring, memory_order_acquire);
	struct slot *slot = slot_of(ring, handle);
	if (!slot)
		return 0;
	uint64_t at_ns = now();
	slot->record.lasted_ns = at_ns - slot->record.begin_ns;
	if (slot->record.kind == CWDP_NCCL_STEP)
		wait_for(slot, CWDP_NCCL_WAIT_POST, at_ns);
	write_record(ring, &slot->record);
	slot_free(slot);
	return 0;
}

/* Each attempt begins anew: between two of them the thread posts for others, such as clear-to-send. */
static void hand_over(struct slot *slot, int state)
{
	if (state != NCCL_SEND_PEER_WAIT) {
		step_under_way = 0;
		return;
	}
	slot->record.qpn = slot->record.posted_bytes = slot->record.posts = 0;
	slot->record.wr_id = 0;
	step_under_way = slot_name(slot);
}

void cwdp_nccl_posted(uint32_t qpn, uint64_t last_wr_id, uint64_t bytes, uint32_t requests)
{
	if (!step_under_way)
		return;
	struct slot *slot = slot_named(step_under_way);
	if (!slot)
		return;
	slot->record.qpn = qpn;
	slot->record.wr_id = last_wr_id;
	slot->record.posted_bytes += (uint32_t)bytes;
	slot->record.posts += requests;
}

static int state(void *handle, int state, const struct nccl_state_args *args)
{
	static const uint8_t waits[] = {
		[NCCL_SEND_GPU_WAIT] = CWDP_NCCL_WAIT_GPU,     [NCCL_SEND_PEER_WAIT] = CWDP_NCCL_WAIT_PEER,
		[NCCL_SEND_WAIT] = CWDP_NCCL_WAIT_WIRE,        [NCCL_RECV_WAIT] = CWDP_NCCL_WAIT_WIRE,
		[NCCL_RECV_FLUSH_WAIT] = CWDP_NCCL_WAIT_FLUSH, [NCCL_RECV_GPU_WAIT] = CWDP_NCCL_WAIT_GPU,
	};
	struct slot *slot = slot_of(atomic_load_explicit(&nccl_ring, memory_order_acquire), handle);
	if (!slot)
		return 0;
	bool is_step = slot->record.kind == CWDP_NCCL_STEP;
	if (is_step)
		hand_over(slot, state);
	if (args && args->trans_size &&
	    (!is_step || state == NCCL_SEND_WAIT || state == NCCL_RECV_FLUSH_WAIT))
		slot->record.bytes = args->trans_size;
	if (is_step && state >= 0 && (size_t)state < sizeof(waits) && waits[state] &&
	    waits[state] != slot->waits_for) {
		uint64_t at_ns = now();
		wait_for(slot, waits[state], at_ns);
		if (slot->record.is_send)
			share_wait(slot, waits[state], at_ns);
	}
	return 0;
}

static int finalize(void *context)
{
	struct cwdp_nccl_ring *ring = atomic_load(&nccl_ring);
	uint16_t comm = comm_of(context);
	if (ring && comm != CWDP_NCCL_NO_COMM)
		atomic_store(&ring->comm[comm].used, 0);
	return 0;
}

/* Places that became free longest ago are taken first, as records of theirs may be in the ring. */
static void *place_comm(struct cwdp_nccl_ring *ring, const struct cwdp_nccl_comm *comm)
{
	for (int i = 0; i < CWDP_NCCL_COMMS; i++) {
		uint32_t place = atomic_fetch_add(&next_comm, 1) % CWDP_NCCL_COMMS, free = 0;
		struct cwdp_nccl_comm *into = &ring->comm[place];
		if (!atomic_compare_exchange_strong(&into->used, &free, 1))
			continue;
		into->id = comm->id;
		into->rank = comm->rank;
		into->ranks = comm->ranks;
		into->nodes = comm->nodes;
		memcpy(into->name, comm->name, sizeof(into->name));
		for (int function = 0; function < CWDP_NCCL_FUNCTIONS; function++)
			atomic_store(&p2p_calls[place][function], 0);
		return (void *)(uintptr_t)(place + 1);
	}
	count(&ring->no_comm);
	return NULL;
}

static int init(void **context, int *mask, const struct cwdp_nccl_comm *comm)
{
	struct cwdp_nccl_ring *ring = context && mask ? agent_meet() : NULL;
	if (context)
		*context = ring ? place_comm(ring, comm) : NULL;
	if (mask)
		*mask = ring ? (int)EVENTS : 0;
	return 0;
}

static int init_v1(void **context, int *mask)
{
	struct cwdp_nccl_comm comm = {.rank = -1};
	return init(context, mask, &comm);
}

static int init_v5(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nodes, int ranks,
		   int rank, void *log)
{
	struct cwdp_nccl_comm comm = {.id = comm_id, .rank = rank, .ranks = ranks, .nodes = nodes};
	(void)log;
	if (comm_name)
		snprintf(comm.name, sizeof(comm.name), "%s", comm_name);
	return init(context, mask, &comm);
}

static int init_v4(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int nodes, int ranks,
		   int rank, void *log)
{
	return init_v5(context, comm_hash, mask, comm_name, nodes, ranks, rank, log);
}

#define PROFILER(version, layout, init, start)                                                               \
	extern const struct layout ncclProfiler_v##version;                                                  \
	__attribute__((visibility("default"))) const struct layout ncclProfiler_v##version = {               \
		"cwdp", init, start, stop, state, finalize,                                                  \
	}

PROFILER(1, nccl_profiler_v1, init_v1, start_v1);
PROFILER(2, nccl_profiler_v1, init_v1, start_v2);
PROFILER(3, nccl_profiler_v1, init_v1, start_v2);
PROFILER(4, nccl_profiler_v4, init_v4, start_v4);
PROFILER(5, nccl_profiler_v5, init_v5, start_v5);
PROFILER(6, nccl_profiler_v5, init_v5, start_v5);
