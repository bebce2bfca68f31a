/* SPDX-License-Identifier: GPL-2.0-only */
/* Which slice a queue pair belongs to, and when its packets may leave. Where fq is the qdisc, each packet is
 * given its earliest departure time; where htb is, its class. */
#pragma once

#include "queue_pairs/qp.h"

#define PACE_SHIFT      18
#define PACE_HORIZON_NS 8000000000ULL /* fq keeps no times that are 10 s away */

static __always_inline bool rule_matches(const struct cwdp_slice_rule *rule, const struct cwdp_qp_key *key,
					 __u32 job, __u32 dscp)
{
	__u32 differ = (rule->qpn ^ key->qpn) & rule->qpn_mask;

	differ |= (rule->dscp ^ dscp) & rule->dscp_mask;
	differ |= rule->job ? rule->job ^ job : 0;
#pragma unroll
	for (__u32 i = 0; i < 4; i++)
		differ |= (rule->addr[i] ^ key->addr[i]) & rule->addr_mask[i];
	return !differ;
}

/* Of one queue pair, over the rules. */
struct rule_search {
	const struct cwdp_slice_list *list;
	struct cwdp_qp_key key;
	__u32 job;
	__u32 dscp;
	__u32 slice; /* found; 0: none */
};

/* Try one rule; nonzero ends the search. */
static long try_rule(__u64 number, struct rule_search *search)
{
	const struct cwdp_slice_rule *rule;

	if (number >= CWDP_SLICE_RULES)
		return 1;
	rule = &search->list->rules[number];
	if (rule->slice && !rule_matches(rule, &search->key, search->job, search->dscp))
		return 0;
	search->slice = rule->slice;
	return 1;
}

/* The slice of the first rule that matches; 0 where none does. By bpf_loop, so that the verifier follows one
 * rule and not all of them. */
static __always_inline __u32 slice_of(const struct cwdp_qp_key *key, __u32 dscp)
{
	struct cwdp_slice_table *table = find_slice_table();
	struct cwdp_job *member = bpf_map_lookup_elem(&jobs, key);
	struct rule_search search = {.key = *key, .dscp = dscp};

	if (!table)
		return 0;
	search.job = member ? member->job : 0;
	search.list = &table->lists[active_of(&table->active)];
	bpf_loop(CWDP_SLICE_RULES, try_rule, &search, 0);
	return search.slice;
}

/* The class of a queue pair: its slice's, or one of those below, which it then keeps. */
static __always_inline __u32 class_of(struct cwdp_slice *slice, __u32 current)
{
	__u32 leaf = current - slice->class_id - 1;

	if (!slice->leaves)
		return slice->class_id;
	if (leaf >= slice->leaves)
		leaf = __sync_fetch_and_add(&slice->next_leaf, 1) % slice->leaves;
	return slice->class_id + 1 + leaf;
}

__noinline int slice_look_up(struct cwdp_qp *qp, __u32 dscp)
{
	struct cwdp_slice *slice;
	struct cwdp_qp_key key;
	__u32 number;

	if (!qp)
		return 0;
	key = qp->key;
	number = slice_of(&key, dscp);
	slice = bpf_map_lookup_elem(&slices, &number);
	if (!slice)
		return 0;
	qp->slice = number;
	qp->priority = class_of(slice, qp->priority);
	qp->pace_q18 = slice->qp_pace_q18;
	if (qp->priority || slice->fair_q18)
		qp->flags |= CWDP_STEER_PACED;
	return 0;
}

/* A queue pair's slice, looked up once per generation. */
static __always_inline void slice_assign(struct cwdp_qp *qp, const struct roce_packet *packet)
{
	slice_look_up(qp, packet->traffic_class >> ECN_BITS);
}

/* The next time at which a slice may send, taken for a packet unless it is too far away. By plain stores, as
 * Cilium's bandwidth manager does: of two CPUs at one instant both may take it, and a little more is sent
 * than the slice may. No queue pair's packets change their order, as each has a time of its own. */
static __always_inline __u64 slice_departure(struct cwdp_slice *slice, __u64 now, __u32 bytes)
{
	__u64 pace = slice->lease_ns > now ? slice->pace_q18 : slice->fair_q18;
	__u64 cost = bytes * pace >> PACE_SHIFT;
	__u64 last = READ_ONCE(slice->departure_ns);
	__u64 departure = last > now ? last : now;

	if (departure - now > PACE_HORIZON_NS)
		return departure;
	WRITE_ONCE(slice->departure_ns, departure + cost);
	return departure;
}

/* When a packet may leave. Never before the one ahead of it, which may have been given its time by another
 * slice. The rates count skb->len: the Ethernet frame without FCS. */
static __always_inline void slice_delay(struct __sk_buff *skb, struct cwdp_qp *qp, struct cwdp_slice *slice)
{
	__u64 now = bpf_ktime_get_ns(), departure = slice_departure(slice, now, skb->len);

	slice->bytes += skb->len;
	if (departure < qp->departure_ns)
		departure = qp->departure_ns;
	if (departure > now + PACE_HORIZON_NS) {
		departure = now + PACE_HORIZON_NS;
		count(CWDP_PACE_CLAMPED);
	}
	qp->departure_ns = departure + ((__u64)skb->len * qp->pace_q18 >> PACE_SHIFT);
	if (departure > now)
		skb->tstamp = departure;
}

/* Give a packet its class or its time of departure. */
static __always_inline void slice_pace(struct __sk_buff *skb, struct cwdp_qp *qp)
{
	__u32 number = qp->slice;
	struct cwdp_slice *slice;

	if (qp->priority) {
		skb->priority = qp->priority;
		return;
	}
	slice = bpf_map_lookup_elem(&slices, &number);
	if (slice)
		slice_delay(skb, qp, slice);
}

/* A probe passes what waits here: it is to see the queues of the fabric. */
static __always_inline void slice_probe(struct __sk_buff *skb)
{
	struct cwdp_slice_table *table = find_slice_table();

	if (table && table->probe_class)
		skb->priority = table->probe_class;
}
