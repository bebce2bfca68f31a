/* SPDX-License-Identifier: GPL-2.0-only */
/* The way of a packet, from its hook to its verdict. What is not ours, or is malformed, leaves as it came.
 *
 *   XDP ingress, ingress()
 *   |  parse_headers; of a nonlinear buffer from a copy, ingress_nonlinear()
 *   |- neither RoCEv2 nor a probe nor what follows ................. PASS
 *   |- an ICMP error: ingress_quote() > give_back_ports ............ PASS
 *   |- a probe: ingress_probe()
 *   |  |- a request: probe_reflect, turned into its reply .......... TX
 *   |  |- a reply: probe_accept, into its slot ..................... DROP, or PASS if the key is not ours
 *   |  `- malformed ................................................ PASS
 *   |- TCP to the port of probes: ingress_tcp
 *   |  |- bears ports: give_back_ports ............................. PASS
 *   |  |- bears ports that its host has not announced .............. DROP
 *   |  `- else ..................................................... PASS
 *   |- a detoured packet: announce_detoured, by metadata ........... PASS, to tc ingress
 *   `- RoCEv2: ingress_roce()
 *      qp_find > telemetry > take_sample ........................... PASS
 *
 *   tc ingress, detour_ingress(); attached only where this NIC has a partner
 *   |- announced by XDP: restore_destination ....................... redirected to the partner NIC's ingress
 *   |- from the partner NIC: arrive_by_detour() > ingress_roce() ... UNSPEC, to the host
 *   `- else ........................................................ UNSPEC, to the host
 *
 *   tc egress, egress()
 *   |- marked, and from a socket of the agent's: egress_marked()
 *   |  |- a NAK: go_back ........................................... redirected to ingress, or SHOT
 *   |  |- an ACK said again: go_back ............................... SHOT, or on as RoCEv2
 *   |  `- a template: probe_send > slice_probe ..................... UNSPEC, to the wire
 *   |- TCP: egress_tcp
 *   |  `- of a steered connection: tcp_route > bear_ports .......... UNSPEC, to the wire
 *   |- not RoCEv2, a probe, or back here after a detour's redirect . UNSPEC, to the wire
 *   `- RoCEv2: egress_roce()
 *      qp_find > egress_qp() > take_sample
 *         telemetry
 *         qp_refresh, slice_assign   once per control.generation
 *         slice_pace                 its class, or its departure time
 *         steer_packet()             choose_route: path, backup or detour; doubt_route; goes_ahead: ACKs
 *         |- path or backup: rewrite_sport ......................... UNSPEC, to the wire
 *         `- detour: take_detour ................................... UNSPEC, or redirected to a NIC's egress
 *
 * Functions with () are in this file, in this order of hooks, each hook's entry last; the others are in the
 * header of their subject. */
#pragma once

#include <linux/pkt_cls.h>

#include "steering/detour.h"
#include "steering/go_back.h"
#include "probe/probe.h"
#include "queue_pairs/slice.h"
#include "queue_pairs/telemetry.h"
#include "tcp/restore.h"
#include "tcp/steer.h"

/* As far as we look: Ethernet, two VLAN tags, IPv6, UDP, BTH, AETH, and some more. */
#define HEADERS_BYTES 96
#define AETH_BYTES    4 /* or the ICRC: every packet has as much behind its BTH */

/* A reply is for nobody but us, whatever becomes of it: the stack would tell its sender that the port is
 * unreachable. One that is signed with another's key may be another's. */
static __always_inline bool is_consumed(enum cwdp_reason reason)
{
	return reason >= CWDP_REPLY_ACCEPTED && reason <= CWDP_REPLY_TIME_REVERSED &&
	       reason != CWDP_REPLY_UNKNOWN_KEY;
}

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
	return is_consumed(reason) ? XDP_DROP : XDP_PASS;
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
	if (qp) {
		telemetry(qp, &packet, CWDP_INGRESS);
		WRITE_ONCE(qp->used_sport, packet.sport);
	}
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

static __always_inline int ingress_frame(struct xdp_md *ctx, struct frame *frame)
{
	int verdict;

	if (is_probe(frame)) {
		verdict = ingress_probe(frame);
		note_metadata(ctx);
		return verdict;
	}
	if (frame->protocol == IPPROTO_TCP)
		return ingress_tcp(frame);
	if (!is_roce(frame))
		return XDP_PASS;
	if (is_detoured(frame))
		return announce_detoured(ctx);
	ingress_roce(frame);
	return XDP_PASS;
}

static __always_inline bool is_tcp_of_probes(const struct frame *frame, enum parsed parsed)
{
	return parsed == PARSED_TCP && frame->packet->dport == bpf_htons(probe_port);
}

/* An ICMP packet, which may quote a segment. */
__noinline int ingress_quote(struct xdp_md *ctx)
{
	struct frame frame;

	if (parse_headers(&frame, (void *)(long)ctx->data, (void *)(long)ctx->data_end, 0) ==
		    PARSED_FOREIGN &&
	    is_icmp(&frame))
		ingress_icmp(&frame);
	return XDP_PASS;
}

/* A packet whose headers go on in fragments, as some drivers have it where jumbo frames are on, or that is
 * too short: from a copy of its beginning, which is put back where it was changed. */
__noinline int ingress_nonlinear(struct xdp_md *ctx)
{
	__u32 zero = 0, length = bpf_xdp_get_buff_len(ctx);
	struct cwdp_beginning *copy = bpf_map_lookup_elem(&beginnings, &zero);
	enum parsed parsed;
	struct frame frame;
	int verdict;

	if (!copy || length < ETH_HLEN)
		return XDP_PASS;
	barrier_var(
		length); /* clang would make one check of two, and the verifier would not see what it is of */
	if (length > sizeof(copy->bytes))
		length = sizeof(copy->bytes);
	if (bpf_xdp_load_bytes(ctx, 0, copy->bytes, length))
		return XDP_PASS;
	parsed = parse_headers(&frame, copy->bytes, copy->bytes + length, 0);
	if (parsed == PARSED_FOREIGN && is_icmp(&frame)) {
		verdict = XDP_PASS;
		ingress_icmp(&frame);
	} else if (parsed == PARSED_ROCE || is_tcp_of_probes(&frame, parsed)) {
		verdict = ingress_frame(ctx, &frame);
	} else {
		return XDP_PASS;
	}
	if (verdict == XDP_TX || parsed != PARSED_ROCE)
		bpf_xdp_store_bytes(ctx, 0, copy->bytes, length);
	return verdict;
}

/* The hook XDP ingress. */
static __always_inline int ingress(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct frame frame;

	switch (parse_headers(&frame, data, end, AETH_BYTES)) {
	case PARSED_FOREIGN:
		return is_icmp(&frame) ? ingress_quote(ctx) : XDP_PASS;
	case PARSED_CUT_SHORT:
		return ingress_nonlinear(ctx);
	case PARSED_TCP:
		if (!is_tcp_of_probes(&frame, PARSED_TCP))
			return XDP_PASS;
		break;
	case PARSED_ROCE:
		break;
	}
	if (has_probe_bth(&frame) && (void *)(frame.packet + 1) > end)
		return ingress_nonlinear(ctx);
	return ingress_frame(ctx, &frame);
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

/* Have the headers of a buffer that could be ours in its linear part. */
static __always_inline void pull_headers(struct __sk_buff *skb)
{
	if (is_cut_short(skb))
		bpf_skb_pull_data(skb, skb->len < HEADERS_BYTES ? skb->len : HEADERS_BYTES);
}

/* Given to this NIC by its partner, and not seen by its XDP program. */
__noinline int arrive_by_detour(struct __sk_buff *skb)
{
	struct frame frame;

	if (parse_roce(&frame, skb_data(skb), (void *)(long)skb->data_end))
		ingress_roce(&frame);
	skb->tc_index = 0;
	return TC_ACT_UNSPEC;
}

/* The hook tc ingress, only of NICs that have a partner. */
static __always_inline int detour_ingress(struct __sk_buff *skb)
{
	__u32 *meta = (void *)(long)skb->data_meta;

	if ((void *)(meta + 1) <= (void *)(long)skb->data && *meta == META_DETOURED &&
	    skb->tc_index != INDEX_ARRIVED) {
		pull_headers(skb);
		return restore_destination(skb);
	}
	return skb->tc_index == INDEX_ARRIVED ? arrive_by_detour(skb) : TC_ACT_UNSPEC;
}

/* Does a packet come from a socket of the agent's? The kernel never gives a cookie to two. */
static __always_inline bool is_from_agent(struct __sk_buff *skb)
{
	struct cwdp_control *settings = find_control();
	__u64 cookie = bpf_get_socket_cookie(skb);

	if (!settings || !cookie)
		return false;
#pragma unroll
	for (int i = 0; i < CWDP_SENDER_COUNT; i++)
		if (settings->senders[i] == cookie)
			return true;
	return false;
}

/* What the agent marked, in one piece as its sockets make it. A function of its own, which the verifier
 * follows once, not with each stack of headers that other packets have. */
__noinline int egress_marked(struct __sk_buff *skb)
{
	enum cwdp_reason reason = CWDP_PROBE_BAD_TEMPLATE;
	enum parsed parsed;
	struct frame frame;

	parsed = parse_headers(&frame, skb_data(skb), (void *)(long)skb->data_end, 0);
	if (parsed >= PARSED_ROCE) {
		if (parsed == PARSED_ROCE && go_back_syndrome(&frame) != ROCE_NO_SYNDROME)
			return go_back(skb);
		if (is_probe(&frame) && find_probe_again(&frame) && probe_length_ok(&frame))
			reason = probe_send(&frame);
	}
	slice_probe(skb);
	count(reason);
	return TC_ACT_UNSPEC;
}

/* Is it an ACK or a NAK of a path that may be dead? The two ends find a path dead from pulses of their own,
 * up to a pulse apart. A NAK of who finds it later would die on it, and it is sent once. Nothing is lost
 * where the path is alive after all: an ACK speaks of all before it, so its order does not matter. */
static __always_inline bool goes_ahead(const struct roce_packet *roce, const struct cwdp_qp *qp, __u32 route)
{
	return route == ROUTE_PRIMARY && qp->flags & CWDP_STEER_BACKUP && roce_is_acknowledge(roce->opcode) &&
	       is_behind(find_path(qp->path), find_path(qp->backup_path));
}

/* Choose the route of a packet of a steered queue pair, and rewrite the packet for it. */
static __always_inline int steer_packet(struct __sk_buff *skb, struct roce_packet *roce, struct cwdp_qp *qp,
					struct cwdp_control *settings)
{
	__u32 route = qp->flags & CWDP_STEER_BACKUP ? choose_route(settings, qp) : ROUTE_PRIMARY;
	__be16 sport;

	if (roce->again && qp->flags & CWDP_STEER_BACKUP)
		route = doubt_route(settings, qp, route);
	roce->ahead = goes_ahead(roce, qp, route);
	sport = route == ROUTE_BACKUP || roce->ahead ? qp->backup_sport : qp->sport;
	if (route > ROUTE_BACKUP)
		return take_detour(skb, roce, qp, route);
	if (roce->sport == sport || !rewrite_sport(skb, roce, qp, sport))
		return TC_ACT_UNSPEC;
	/* a connected socket's hash would have software switches keep to the old path */
	if (skb->hash)
		bpf_set_hash_invalid(skb);
	return TC_ACT_UNSPEC;
}

/* Count, class and steer a packet of a queue pair. */
static __always_inline int egress_qp(struct __sk_buff *skb, struct roce_packet *packet, struct cwdp_qp *qp,
				     struct cwdp_control *settings)
{
	int verdict = TC_ACT_UNSPEC;

	packet->again = is_said_again(qp, packet);
	telemetry(qp, packet, CWDP_EGRESS);
	if (qp->generation != settings->generation) {
		qp_refresh(qp, settings->generation);
		slice_assign(qp, packet);
	}
	if (qp->flags & CWDP_STEER_PACED)
		slice_pace(skb, qp);
	if (qp->flags & CWDP_STEER_ON)
		verdict = steer_packet(skb, packet, qp, settings);
	/* one store: between two, a reader would see a move that never was */
	if (!packet->ahead)
		WRITE_ONCE(qp->used_sport, packet->sport);
	return verdict;
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
	if (qp)
		verdict = egress_qp(skb, &packet, qp, settings);
	if (is_sampled(&packet, settings->sample_below))
		take_sample(&packet, packet.sport, CWDP_EGRESS);
	return verdict;
}

/* The hook tc egress. TCP is looked at in one place, so that who steers none pays for one look. */
static __always_inline int egress(struct __sk_buff *skb)
{
	struct frame frame;
	enum parsed parsed;
	int verdict;

	if (skb->mark == CWDP_MARK) {
		if (is_from_agent(skb)) {
			verdict = egress_marked(skb);
			if (verdict != LEAVES_AS_ROCE)
				return verdict;
		} else {
			count(CWDP_PROBE_NOT_OURS);
		}
	}
	pull_headers(skb);
	parsed = parse_headers(&frame, skb_data(skb), (void *)(long)skb->data_end, 0);
	if (parsed == PARSED_TCP)
		egress_tcp(skb, &frame);
	else if (parsed == PARSED_ROCE && is_roce(&frame) && !is_probe(&frame) && skb->tc_index != INDEX_SENT)
		return egress_roce(skb, &frame);
	else if (parsed == PARSED_FOREIGN && hides_tcp(&frame))
		left_alone();
	return TC_ACT_UNSPEC;
}
