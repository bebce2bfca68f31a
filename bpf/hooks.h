/* SPDX-License-Identifier: GPL-2.0-only */
/* From a packet to its verdict. What is not ours, or is not in order, leaves as it came. */
#pragma once

#include <linux/pkt_cls.h>

#include "control.h"
#include "detour.h"
#include "probe.h"
#include "telemetry.h"

/* As far as we look: Ethernet, two VLAN tags, IPv6, UDP, BTH, AETH, and some more. */
#define HEADERS_BYTES 96

static __always_inline int ingress_probe(struct frame *frame)
{
	__u64 now = clock_local_ns();
	enum cwdp_reason reason;

	if (!find_probe_again(frame) || !probe_length_ok(frame))
		reason = CWDP_BAD_LENGTH;
	else if (frame->probe->version != CWDP_PROBE_VERSION)
		reason = CWDP_BAD_VERSION;
	else if (frame->probe->kind == CWDP_PROBE_REQUEST)
		reason = probe_reflect(frame, now);
	else if (frame->probe->kind == CWDP_PROBE_REPLY)
		reason = probe_accept(frame, now);
	else
		reason = CWDP_BAD_KIND;
	count(reason);
	if (reason == CWDP_REQUEST_REFLECTED)
		return XDP_TX;
	return reason == CWDP_REPLY_ACCEPTED ? XDP_DROP : XDP_PASS;
}

static __always_inline bool is_roce(const struct frame *frame)
{
	return frame->packet->dport == bpf_htons(CWDP_ROCE_PORT);
}

static __always_inline void ingress_roce(const struct frame *frame)
{
	struct cwdp_control *settings = find_control();
	struct roce_packet packet = {};
	struct cwdp_qp *qp;

	if (!settings)
		return;
	roce_describe(&packet, frame, CWDP_INGRESS);
	qp = qp_find(CWDP_INGRESS, &packet.key, settings->hash_seed);
	if (!qp)
		return;
	telemetry(qp, &packet, CWDP_INGRESS);
	qp->used_sport = packet.sport;
	if (is_sampled(&packet, settings->sample_below))
		take_sample(&packet, packet.sport, CWDP_INGRESS);
}

/* Whether this NIC could take in detours is known before one comes: pulses along them come first. */
static __always_inline void note_metadata(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct cwdp_meta *noted = bpf_map_lookup_elem(&meta, &zero);

	if (noted && !noted->metadata)
		noted->metadata = bpf_xdp_adjust_meta(ctx, 0) ? CWDP_METADATA_LACKS : CWDP_METADATA_HAS;
}

static __always_inline int ingress(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct frame frame;
	int verdict;

	if (!parse_roce(&frame, data, end))
		return XDP_PASS;
	if (is_probe(&frame)) {
		verdict = ingress_probe(&frame);
		note_metadata(ctx);
		return verdict;
	}
	if (!is_roce(&frame))
		return XDP_PASS;
	if (is_detoured(&frame))
		return announce_detoured(ctx);
	ingress_roce(&frame);
	return XDP_PASS;
}

/* Given to this NIC by the one beside it, and not seen by its XDP program. */
__noinline int arrive_by_detour(struct __sk_buff *skb)
{
	struct frame frame;

	if (parse_roce(&frame, skb_data(skb), (void *)(long)skb->data_end))
		ingress_roce(&frame);
	skb->tc_index = 0;
	return TC_ACT_UNSPEC;
}

/* Only of NICs that have one beside them. */
static __always_inline int detour_ingress(struct __sk_buff *skb)
{
	__u32 *meta = (void *)(long)skb->data_meta;

	if ((void *)(meta + 1) <= (void *)(long)skb->data && *meta == META_DETOURED &&
	    skb->tc_index != INDEX_ARRIVED)
		return restore_destination(skb);
	return skb->tc_index == INDEX_ARRIVED ? arrive_by_detour(skb) : TC_ACT_UNSPEC;
}

/* What the agent marked. A function of its own, which the verifier follows once, not with each stack of
 * headers that other packets have. */
__noinline int egress_probe(struct __sk_buff *skb)
{
	enum cwdp_reason reason = CWDP_PROBE_BAD_TEMPLATE;
	struct frame frame;

	slice_probe(skb);
	if (parse_roce(&frame, skb_data(skb), (void *)(long)skb->data_end) && is_probe(&frame) &&
	    find_probe_again(&frame) && probe_length_ok(&frame))
		reason = probe_send(&frame);
	count(reason);
	return 0;
}

static __always_inline int egress_roce(struct __sk_buff *skb, struct frame *frame)
{
	struct cwdp_control *settings = find_control();
	struct roce_packet packet = {};
	int verdict = TC_ACT_UNSPEC;
	struct cwdp_qp *qp;

	if (!settings)
		return verdict;
	roce_describe(&packet, frame, CWDP_EGRESS);
	qp = qp_find(CWDP_EGRESS, &packet.key, settings->hash_seed);
	if (!qp)
		return verdict;
	telemetry(qp, &packet, CWDP_EGRESS);
	if (qp->generation != settings->generation) {
		qp_refresh(qp, settings->generation);
		slice_assign(qp, &packet);
	}
	qp->used_sport = packet.sport;
	if (qp->flags & CWDP_STEER_PACED)
		slice_pace(skb, qp);
	if (qp->flags & CWDP_STEER_ON)
		verdict = steer_packet(skb, &packet, qp, settings);
	if (is_sampled(&packet, settings->sample_below))
		take_sample(&packet, qp->used_sport, CWDP_EGRESS);
	return verdict;
}

/* Do the headers go on outside the linear part of a buffer that could be ours? TCP's always do. */
static __always_inline bool is_cut_short(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv6hdr *ip6 = data + ETH_HLEN;
	struct iphdr *ip = data + ETH_HLEN;

	if (data + HEADERS_BYTES <= end || skb->len <= (__u32)(end - data))
		return false;
	if (skb->protocol == bpf_htons(ETH_P_IP) && (void *)(ip + 1) <= end)
		return ip->protocol == IPPROTO_UDP;
	if (skb->protocol == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= end)
		return ip6->nexthdr == IPPROTO_UDP;
	return true;
}

static __always_inline int egress(struct __sk_buff *skb)
{
	struct frame frame;

	if (is_cut_short(skb))
		bpf_skb_pull_data(skb, skb->len < HEADERS_BYTES ? skb->len : HEADERS_BYTES);
	if (skb->mark == CWDP_MARK)
		egress_probe(skb);
	else if (parse_roce(&frame, skb_data(skb), (void *)(long)skb->data_end) && is_roce(&frame) &&
		 !is_probe(&frame) && skb->tc_index != INDEX_SENT)
		return egress_roce(skb, &frame);
	return TC_ACT_UNSPEC;
}
