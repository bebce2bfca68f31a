/* SPDX-License-Identifier: GPL-2.0-only */
/* A steered queue pair's packets leave with the source port of their path, with an ICRC and a UDP checksum
 * that agree, and over IPv6 with its flow label where asked. What is not wholly in order leaves as it came.
 */
#pragma once

#include "failover.h"
#include "icrc.h"
#include "slice.h"

#define ICRC_BYTES 4
#define UDP_MIN    (offsetof(struct cwdp_probe_packet, probe) + ICRC_BYTES)
#define UDP_MASK   0x3fff
#define UDP_CHECK  offsetof(struct cwdp_probe_packet, check)

/* What is wanted of a queue pair, copied anew after each change. */
__noinline int qp_refresh(struct cwdp_qp *qp, __u32 generation)
{
	struct cwdp_steer *wanted;
	struct cwdp_qp_key key;

	if (!qp)
		return 0;
	key = qp->key;
	wanted = bpf_map_lookup_elem(&steer, &key);
	if (wanted) {
		qp->sport = wanted->sport;
		qp->backup_sport = wanted->backup_sport;
		qp->path = wanted->path;
		qp->backup_path = wanted->backup_path;
	}
	qp->flags = wanted ? wanted->flags : 0;
	qp->generation = generation;
	return 0;
}

/* The UDP length, where IP, UDP and buffer agree on it and there is an ICRC to put right; else 0. */
static __always_inline __u32 steerable_bytes(const struct frame *frame, __u32 offset, __u32 skb_bytes)
{
	__u32 bytes = bpf_ntohs(frame->packet->len);
	__u32 ip_bytes;

	if (!frame->ip && !frame->ip6)
		return 0;
	ip_bytes = frame->ip ? bpf_ntohs(frame->ip->tot_len) - sizeof(struct iphdr)
			     : bpf_ntohs(frame->ip6->payload_len);

	if (bytes < UDP_MIN || bytes > CWDP_UDP_MAX || bytes % 4 || bytes != ip_bytes ||
	    offset + bytes > skb_bytes)
		return 0;
	return bytes;
}

/* The label that the flow-label-to-port rule of RoCEv2 (IBTA A17, as Linux has it) turns into this port. */
static __always_inline void set_flow_label(struct ipv6hdr *ip6, __be16 sport)
{
	__u32 label = bpf_ntohs(sport) & 0x3fff;

	ip6->flow_lbl[0] &= 0xf0;
	ip6->flow_lbl[1] = label >> 8;
	ip6->flow_lbl[2] = label;
}

/* By helpers, which make the buffer writable and know of checksums left to the device. */
static __always_inline enum cwdp_reason rewrite_slowly(struct __sk_buff *skb, __u32 offset, __u32 bytes,
						       __u32 ports, __u32 change, bool has_checksum)
{
	__u32 icrc_offset = offset + bytes - ICRC_BYTES, icrc, old;
	__u16 from = ports, to = ports >> 16;

	if (bpf_skb_load_bytes(skb, icrc_offset, &old, sizeof(old)))
		return CWDP_STEER_BAD_LENGTH;
	icrc = old ^ change;
	if (bpf_skb_store_bytes(skb, icrc_offset, &icrc, sizeof(icrc), 0))
		return CWDP_STEER_NO_MEMORY;
	bpf_skb_store_bytes(skb, offset, &to, sizeof(to), 0);
	if (has_checksum) {
		bpf_l4_csum_replace(skb, offset + UDP_CHECK, from, to, sizeof(to) | BPF_F_MARK_MANGLED_0);
		bpf_l4_csum_replace(skb, offset + UDP_CHECK, old, icrc, sizeof(icrc) | BPF_F_MARK_MANGLED_0);
	}
	return CWDP_STEER_REWRITTEN;
}

/* Rewrite the source port; the frame's pointers are void afterwards. */
static __always_inline enum cwdp_reason rewrite_sport(struct __sk_buff *skb, struct frame *frame,
						      struct cwdp_qp *qp, __be16 sport)
{
	struct cwdp_probe_packet *packet = frame->packet;
	__u32 offset = (void *)packet - (void *)(long)skb->data, change, bytes;
	__be16 before = packet->sport;
	__u32 *icrc;

	if (skb->gso_size)
		return CWDP_STEER_GSO;
	bytes = steerable_bytes(frame, offset, skb->len);
	if (!bytes)
		return CWDP_STEER_BAD_LENGTH;
	change = icrc_change(qp, bytes, before ^ sport);
	if (frame->ip6 && qp->flags & CWDP_STEER_FLOW_LABEL)
		set_flow_label(frame->ip6, sport);
	icrc = (void *)packet + ((bytes - ICRC_BYTES) & UDP_MASK);
	if (packet->check || (void *)(icrc + 1) > frame->end)
		return rewrite_slowly(skb, offset, bytes, (__u32)sport << 16 | before, change, packet->check);
	*icrc ^= change;
	packet->sport = sport;
	return CWDP_STEER_REWRITTEN;
}

/* Egress: the path that the queue pair is to take, and a packet that looks like it. */
static __always_inline void steer_packet(struct __sk_buff *skb, struct frame *frame, struct cwdp_qp *qp,
					 struct cwdp_control *settings)
{
	__be16 sport = qp->sport;
	enum cwdp_reason reason;

	if (qp->flags & CWDP_STEER_BACKUP && on_backup(settings, qp))
		sport = qp->backup_sport;
	if (frame->packet->sport == sport)
		return;
	reason = rewrite_sport(skb, frame, qp, sport);
	if (reason == CWDP_STEER_REWRITTEN)
		qp->used_sport = sport;
	count(reason);
}
