/* SPDX-License-Identifier: GPL-2.0-only */
/* The tables of queue pairs: each has its place in one of two buckets of eight, found by a hash, so neither a
 * helper is called nor a list walked. A full bucket evicts the least recently seen. What operators want of a
 * queue pair is not lost with it, but copied from `steer` again.
 *
 * Anybody who can send a UDP datagram can make up queue pairs. So a newcomer that nobody steers takes the
 * place only of who was seen less recently; it is settled, and has a head start before newcomers, from its
 * first packet in another tick on; and few get a place within one tick. Without a place a packet passes all
 * the same. */
#pragma once

#include "maps.h"
#include "packet/roce.h"

#define QP_TICK_SHIFT    5      /* last_seen_ns is written once in 32 jiffies: 32 to 320 ms */
#define QP_SETTLED       0x8000 /* of a tick */
#define QP_HEAD_START_NS 60000000000ULL
#define LONG_AGO_JIFFIES 0x8000 /* as far from now as 16 bits tell */
/* struct cwdp_control.newcomers: the tick in the upper half, then 8 bits each of chance and of the jiffy in
 * which the last place was given, then how many were */
#define NEWCOMERS_CHANCE_SHIFT 24
#define NEWCOMERS_LAST_SHIFT   16
#define NEWCOMERS_CHANCE_MAX   16
#define NEWCOMERS_CHANCE(n)    ((n) >> NEWCOMERS_CHANCE_SHIFT)
#define NEWCOMERS_LAST(n)      ((n) >> NEWCOMERS_LAST_SHIFT & 0xff)
#define NEWCOMERS_GIVEN(n)     ((n)&0xffff)

#define QP_BUSY 1 /* a tag while its place is filled in */

/* In place of a place: there is none, and one for this packet will do; or nothing is wanted of it. */
#define QP_FOR_PACKET (-1)
#define QP_NONE       (-2)

static __always_inline __u16 qp_tick(__u64 jiffies)
{
	return (jiffies >> QP_TICK_SHIFT) & (QP_SETTLED - 1);
}

static __always_inline __u64 qp_hash(const struct cwdp_qp_key *key, __u64 seed)
{
	__u64 high = (__u64)key->addr[0] << 32 | key->addr[1];
	__u64 low = (__u64)key->addr[2] << 32 | key->addr[3];
	__u64 h = (seed ^ high) * 0x9e3779b97f4a7c15ULL;

	h = (h ^ h >> 32 ^ low) * 0xbf58476d1ce4e5b9ULL;
	h = (h ^ h >> 32 ^ key->qpn) * 0x94d049bb133111ebULL;
	return (h ^ h >> 32) | 2;
}

static __always_inline struct cwdp_qp_bucket *qp_bucket(enum cwdp_direction direction, __u32 index)
{
	index &= qp_buckets - 1;
	return direction == CWDP_EGRESS ? bpf_map_lookup_elem(&qps_out, &index)
					: bpf_map_lookup_elem(&qps_in, &index);
}

static __always_inline __u32 first_bucket(__u64 tag)
{
	return tag >> 32;
}

static __always_inline __u32 second_bucket(__u64 tag)
{
	return tag >> 8 ^ tag >> 40;
}

/* clang would add the way to the bucket before it is known to be there, which the verifier forbids. */
static __always_inline struct cwdp_qp *qp_in(struct cwdp_qp_bucket *bucket, __u32 way)
{
	barrier_var(bucket);
	return &bucket->ways[way % CWDP_QP_WAYS];
}

/* The way that holds a tag; CWDP_QP_WAYS where none does. */
static __always_inline __u32 way_of(struct cwdp_qp_bucket *bucket, __u64 tag)
{
	__u32 start = tag >> 2;

#pragma unroll
	for (__u32 i = 0; i < CWDP_QP_WAYS; i++) {
		__u32 way = (start ^ i) % CWDP_QP_WAYS;

		if (READ_ONCE(qp_in(bucket, way)->tag) == tag)
			return way;
	}
	return CWDP_QP_WAYS;
}

/* When a place was last of use: 0 where it is free, the end of time where it is being filled in. */
static __always_inline __u64 qp_recency(const struct cwdp_qp *qp)
{
	if (qp->tag == QP_BUSY)
		return ~0ULL;
	if (!qp->tag)
		return 0;
	return qp->last_seen_ns + (qp->tick & QP_SETTLED ? QP_HEAD_START_NS : 0);
}

/* The free way that a queue pair would be looked for first, or the least recently seen one; CWDP_QP_WAYS
 * where all are being filled in. */
__noinline __u32 room_in(struct cwdp_qp_bucket *bucket, __u64 tag)
{
	__u32 start = tag >> 2, oldest = start % CWDP_QP_WAYS;
	__u64 least = ~0ULL;

	if (!bucket)
		return CWDP_QP_WAYS;
	for (__u32 i = 0; i < CWDP_QP_WAYS; i++) {
		__u32 way = (start ^ i) % CWDP_QP_WAYS;
		__u64 recency = qp_recency(qp_in(bucket, way));

		if (recency < least) {
			least = recency;
			oldest = way;
		}
	}
	return least == ~0ULL ? CWDP_QP_WAYS : oldest;
}

/* All but the tag begins anew. */
static __always_inline void qp_start(struct cwdp_qp *qp, const struct cwdp_qp_key *key, __u16 tick,
				     __u16 data_jiffies)
{
	__u64 *words = (__u64 *)qp;

	for (__u32 i = 1; i < sizeof(*qp) / sizeof(*words); i++)
		words[i] = 0;
	qp->key = *key;
	qp->tick = tick;
	qp->data_jiffies = data_jiffies;
}

/* The chance of a newcomer in the next tick, 2^-n. It follows from when the places of this one ran out, so
 * that in a flood they last for the whole tick, and who sends often finds one before those who come once. */
static __always_inline __u32 next_chance(__u32 newcomers)
{
	__u32 chance = NEWCOMERS_CHANCE(newcomers), given = NEWCOMERS_GIVEN(newcomers), left;

	if (given < CWDP_QP_NEWCOMERS)
		return given > CWDP_QP_NEWCOMERS / 4 || !chance ? chance : chance - 1;
	left = NEWCOMERS_LAST(newcomers) + 1;
#pragma unroll
	for (__u32 i = 0; i < QP_TICK_SHIFT; i++)
		chance += left <= 1U << i;
	return chance < NEWCOMERS_CHANCE_MAX ? chance : NEWCOMERS_CHANCE_MAX;
}

/* May one more that nobody steers be given a place in this tick? Where CPUs disagree about the tick, some
 * more may. */
static __always_inline bool has_room_for_newcomer(__u32 direction, __u32 tick)
{
	struct cwdp_control *settings = find_control();
	__u64 *newcomers, before;
	__u32 now, chance;

	if (!settings)
		return false;
	newcomers = &settings->newcomers[direction & 1];
	before = READ_ONCE(*newcomers);
	now = before;
	if (before >> 32 != tick) {
		now = next_chance(now) << NEWCOMERS_CHANCE_SHIFT | 1;
		__sync_val_compare_and_swap(newcomers, before, (__u64)tick << 32 | now);
		return true;
	}
	if (NEWCOMERS_GIVEN(now) >= CWDP_QP_NEWCOMERS)
		return false;
	chance = NEWCOMERS_CHANCE(now);
	if (chance && bpf_get_prandom_u32() & ((1U << chance) - 1))
		return false;
	if (NEWCOMERS_GIVEN(now) == CWDP_QP_NEWCOMERS - 1)
		now |= (bpf_jiffies64() & ((1 << QP_TICK_SHIFT) - 1)) << NEWCOMERS_LAST_SHIFT;
	__sync_val_compare_and_swap(newcomers, before, (__u64)tick << 32 | (now + 1));
	return true;
}

static __always_inline bool is_steered(__u32 direction, const struct cwdp_qp_key *key)
{
	struct cwdp_steered *known;
	struct cwdp_qp_key copy = *key; /* before Linux 6.2 no other memory can be a key */
	struct cwdp_steer *wanted;
	__u32 zero = 0;

	known = direction == CWDP_EGRESS ? bpf_map_lookup_elem(&steered, &zero) : NULL;
	if (!known || !known->qps[key->qpn % CWDP_STEERED_QPNS])
		return false;
	wanted = bpf_map_lookup_elem(&steer, &copy);
	return wanted && wanted->flags & CWDP_STEER_ON;
}

/* What there is for a packet of a queue pair that has no place. */
static __always_inline int without_place(__u32 direction, bool wanted)
{
	return wanted || (direction == CWDP_EGRESS && has_slices()) ? QP_FOR_PACKET : QP_NONE;
}

/* Make a place for a queue pair. Its generation, 0, is nobody's, so what is wanted of it will be looked up.
 * Two CPUs may make two places for one; whoever reads adds them up. */
__noinline int qp_add(__u32 direction, const struct cwdp_qp_key *key, __u64 tag)
{
	__u32 index = first_bucket(tag), way, other;
	struct cwdp_qp_bucket *bucket, *second;
	__u64 before, now, jiffies = bpf_jiffies64();
	__u16 tick = qp_tick(jiffies);
	struct cwdp_qp *qp;
	bool wanted;

	if (!key)
		return QP_NONE;
	wanted = is_steered(direction, key);
	if (!wanted && !has_room_for_newcomer(direction, tick))
		return without_place(direction, wanted);
	bucket = qp_bucket(direction, index);
	second = qp_bucket(direction, second_bucket(tag));
	if (!bucket || !second)
		return QP_NONE;
	way = room_in(bucket, tag);
	if (way == CWDP_QP_WAYS || qp_in(bucket, way)->tag) {
		other = room_in(second, tag);
		if (other < CWDP_QP_WAYS && !qp_in(second, other)->tag) {
			bucket = second;
			index = second_bucket(tag);
			way = other;
		}
	}
	if (way >= CWDP_QP_WAYS)
		return without_place(direction, wanted);
	qp = qp_in(bucket, way);
	now = bpf_ktime_get_ns();
	before = READ_ONCE(qp->tag);
	if (before == QP_BUSY || (!wanted && qp_recency(qp) >= now) ||
	    __sync_val_compare_and_swap(&qp->tag, before, QP_BUSY) != before)
		return without_place(direction, wanted);
	qp_start(qp, key, wanted ? tick | QP_SETTLED : tick, jiffies + LONG_AGO_JIFFIES);
	qp->last_seen_ns = now;
	__sync_lock_test_and_set(&qp->tag, tag);
	count(before ? CWDP_QP_EVICTED : CWDP_QP_ADDED);
	return (index & (qp_buckets - 1)) * CWDP_QP_WAYS + way;
}

/* For one packet of a queue pair that has no place. */
static __always_inline struct cwdp_qp *qp_scratch_for(const struct cwdp_qp_key *key)
{
	__u64 jiffies = bpf_jiffies64();
	struct cwdp_qp *qp;
	__u32 zero = 0;

	qp = bpf_map_lookup_elem(&qp_scratch, &zero);
	if (qp)
		qp_start(qp, key, qp_tick(jiffies), jiffies);
	return qp;
}

/* The place of a queue pair: the number of its bucket times CWDP_QP_WAYS plus its way; -1 where there is
 * none. */
static __always_inline int qp_known_place(__u32 direction, __u64 tag)
{
	struct cwdp_qp_bucket *bucket;
	__u32 index = first_bucket(tag), way;

	bucket = qp_bucket(direction, index);
	way = bucket ? way_of(bucket, tag) : CWDP_QP_WAYS;
	if (way < CWDP_QP_WAYS)
		return (index & (qp_buckets - 1)) * CWDP_QP_WAYS + way;
	index = second_bucket(tag);
	bucket = qp_bucket(direction, index);
	way = bucket ? way_of(bucket, tag) : CWDP_QP_WAYS;
	if (way < CWDP_QP_WAYS)
		return (index & (qp_buckets - 1)) * CWDP_QP_WAYS + way;
	return -1;
}

/* NULL where the table does not have it. */
static __always_inline struct cwdp_qp *qp_known(enum cwdp_direction direction, const struct cwdp_qp_key *key,
						__u64 seed)
{
	int place = qp_known_place(direction, qp_hash(key, seed));
	struct cwdp_qp_bucket *bucket = place < 0 ? NULL : qp_bucket(direction, place / CWDP_QP_WAYS);

	return bucket ? qp_in(bucket, place) : NULL;
}

/* The place of a queue pair, made if need be; negative where there is none. */
static __always_inline int qp_place(__u32 direction, const struct cwdp_qp_key *key, __u64 seed)
{
	__u64 tag = qp_hash(key, seed);
	int place = qp_known_place(direction, tag);

	return place < 0 ? qp_add(direction, key, tag) : place;
}

/* The record of a queue pair; where it has no place, one for this packet or NULL. */
static __always_inline struct cwdp_qp *qp_find(enum cwdp_direction direction, const struct cwdp_qp_key *key,
					       __u64 seed)
{
	int place = qp_place(direction, key, seed);
	struct cwdp_qp_bucket *bucket;

	if (place < 0) {
		count(CWDP_QP_UNTRACKED);
		return place == QP_FOR_PACKET ? qp_scratch_for(key) : NULL;
	}
	bucket = qp_bucket(direction, place / CWDP_QP_WAYS);
	return bucket ? qp_in(bucket, place) : NULL;
}
