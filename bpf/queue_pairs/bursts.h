/* SPDX-License-Identifier: GPL-2.0-only */
/* Bursts of one direction of a queue pair: data packets with no gap above a set number of jiffies.
 *
 * A packet compares jiffies; the first one after a gap reads the clock, closes the burst before it and begins
 * another. So the start is exact, and the end, the last packet before the gap, is known to a jiffy. What a
 * burst counts is what its queue pair counted until the next one began: nothing is added up a second time,
 * and what follows the last packet, such as a NAK, is part of it. Where two CPUs find one gap, one of them
 * closes; a packet of the other may be counted in the burst before. A queue pair that sends no more has its
 * burst closed by close_bursts(), which the agent runs.
 *
 * Jiffies are kept modulo 2^16: a gap that is longer than this by less than the set one, of some minutes, is
 * not seen. */
#pragma once

#include "clock.h"
#include "maps.h"
#include "queue_pairs/qp.h"

#define SWEEP_MAX (1 << 23) /* what bpf_loop takes */

/* When something happened, on the timeline. */
struct burst_moment {
	__s64 timeline_ns;
	__u32 bound_ns;
};

static __always_inline struct burst_moment burst_now(void)
{
	__u64 local_ns = clock_local_ns();
	struct clock_reading reading = clock_read_line(local_ns);

	return (struct burst_moment){(__s64)local_ns + reading.offset_ns, reading.bound_ns};
}

static __always_inline __u32 naks_of(const struct cwdp_qp *qp)
{
	__u32 naks = 0;

#pragma unroll
	for (__u32 i = 0; i < CWDP_NAK_KINDS; i++)
		naks += qp->naks[i];
	return naks;
}

/* Packets but acknowledgements and congestion notifications. */
static __always_inline __u64 data_packets_of(const struct cwdp_qp *qp)
{
	return qp->packets - qp->acks - qp->cnps - naks_of(qp);
}

static __always_inline struct cwdp_burst_start *burst_start_of(__u32 direction, __u32 place)
{
	__u32 index = place << 1 | (direction & 1);

	return bpf_map_lookup_elem(&burst_starts, &index);
}

/* Is it this CPU's to close and begin, and whose was it? QP_BUSY: another's. */
static __always_inline __u64 burst_claim(struct cwdp_burst_start *start)
{
	__u64 tag = READ_ONCE(start->tag);

	return __sync_val_compare_and_swap(&start->tag, tag, QP_BUSY) == tag ? tag : QP_BUSY;
}

/* Write down a burst that is over. */
static __always_inline void burst_tell(const struct cwdp_burst_start *start, const struct cwdp_qp *qp,
				       __u32 direction, __u16 idle_jiffies, struct burst_moment closed)
{
	struct cwdp_control *settings = find_control();
	struct cwdp_burst *burst;
	__u64 number;
	__u32 index;

	if (!settings)
		return;
	number = __sync_fetch_and_add(&settings->burst_head, 1) + 1;
	index = number & (CWDP_BURSTS - 1);
	burst = bpf_map_lookup_elem(&bursts, &index);
	if (!burst)
		return;
	WRITE_ONCE(burst->number, 0);
	burst->start_ns = start->start_ns;
	burst->closed_ns = closed.timeline_ns;
	burst->packets = data_packets_of(qp) - start->packets;
	burst->bytes = qp->bytes - start->bytes;
	burst->ce_marks = qp->ce_marks - start->ce_marks;
	burst->resent = qp->psn_retransmitted - start->resent;
	burst->naks = naks_of(qp) - start->naks;
	burst->bound_ns = start->bound_ns > closed.bound_ns ? start->bound_ns : closed.bound_ns;
	burst->key = qp->key;
	burst->direction = direction;
	burst->idle_jiffies = idle_jiffies;
	__sync_lock_test_and_set(&burst->number, number);
}

static __always_inline void burst_begin(struct cwdp_burst_start *start, const struct cwdp_qp *qp,
					struct burst_moment begun)
{
	start->start_ns = begun.timeline_ns;
	start->bound_ns = begun.bound_ns;
	start->packets = data_packets_of(qp);
	start->bytes = qp->bytes;
	start->ce_marks = qp->ce_marks;
	start->resent = qp->psn_retransmitted;
	start->naks = naks_of(qp);
}

/* A data packet comes after a gap, and is not counted yet: one burst is over, another begins. */
__noinline int burst_turn(struct cwdp_qp *qp, __u32 direction, __u16 gap_jiffies)
{
	struct cwdp_burst_start *start;
	struct burst_moment now;
	int place;
	__u64 tag;

	if (!qp)
		return 0;
	place = qp_known_place(direction, qp->tag);
	start = place < 0 ? NULL : burst_start_of(direction, place);
	if (!start)
		return 0;
	tag = burst_claim(start);
	if (tag == QP_BUSY)
		return 0;
	now = burst_now();
	if (tag == qp->tag)
		burst_tell(start, qp, direction, gap_jiffies, now);
	else if (tag)
		count(CWDP_BURST_EVICTED);
	burst_begin(start, qp, now);
	__sync_lock_test_and_set(&start->tag, qp->tag);
	return 0;
}

/* Jiffies since the last data packet; 0 also where another CPU, a jiffy ahead, has handled one. */
static __always_inline __u16 data_gap(const struct cwdp_qp *qp, __u64 jiffies)
{
	__u16 gap = jiffies - READ_ONCE(qp->data_jiffies);

	return gap == 0xffff ? 0 : gap;
}

static __always_inline bool is_gap(__u16 gap_jiffies)
{
	struct cwdp_control *settings = find_control();

	return settings && settings->burst_gap_jiffies && gap_jiffies > settings->burst_gap_jiffies;
}

/* A data packet that is not counted yet. */
static __always_inline void follow_burst(struct cwdp_qp *qp, __u32 direction, __u64 jiffies)
{
	__u16 gap = data_gap(qp, jiffies);

	if (!gap)
		return;
	if (is_gap(gap))
		burst_turn(qp, direction, gap);
	WRITE_ONCE(qp->data_jiffies, jiffies);
}

/* Close the burst of one direction of a place if it is over. */
static long close_if_over(__u64 number, void *unused)
{
	__u32 direction = number & 1, place = number >> 1;
	struct cwdp_burst_start *start = burst_start_of(direction, place);
	struct cwdp_qp_bucket *bucket;
	struct cwdp_qp *qp;
	__u64 tag;
	__u16 gap;

	(void)unused;
	if (!start)
		return 1;
	tag = READ_ONCE(start->tag);
	if (tag <= QP_BUSY)
		return 0;
	bucket = qp_bucket(direction, place / CWDP_QP_WAYS);
	if (!bucket)
		return 1;
	qp = qp_in(bucket, place);
	gap = data_gap(qp, bpf_jiffies64());
	if (qp->tag != tag || !is_gap(gap) || burst_claim(start) != tag)
		return 0;
	burst_tell(start, qp, direction, gap, burst_now());
	__sync_lock_test_and_set(&start->tag, 0);
	return 0;
}

/* Close the bursts of all queue pairs that have sent nothing for longer than the gap. */
static __always_inline int close_bursts_over(void)
{
	bpf_loop(SWEEP_MAX, close_if_over, NULL, 0);
	return 0;
}
