/* SPDX-License-Identifier: GPL-2.0-only */
/* A steered queue pair's packets leave with the source port of their path, with an ICRC and a UDP checksum
 * that agree, and over IPv6 with its flow label where asked. What is not wholly in order leaves as it came.
 */
#pragma once

#include "steering/icrc.h"
#include "packet/roce.h"

#define PORT_IN_LABEL 0x3fff /* the two bits above are set in every RoCEv2 port */
#define ICRC_BYTES    4
#define UDP_MIN       (offsetof(struct cwdp_probe_packet, probe) + ICRC_BYTES)
#define UDP_MASK      0x3fff
#define UDP_CHECK     offsetof(struct cwdp_probe_packet, check)

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
static __always_inline __u32 steerable_bytes(const struct roce_packet *roce, __u32 bytes, __u32 skb_bytes)
{
	if (bytes < UDP_MIN || bytes > CWDP_UDP_MAX || bytes % 4 ||
	    bytes + roce->ip_header_bytes != roce->ip_bytes || roce->udp_offset + bytes > skb_bytes)
		return 0;
	return bytes;
}

/* Version, traffic class and the flow label that the label-to-port rule of RoCEv2 (IBTA A17, as Linux has it)
 * turns into this port. */
static __always_inline __be32 with_flow_label(__be32 first_word, __be16 sport)
{
	return (first_word & bpf_htonl(~IPV6_FLOW_LABEL)) | bpf_htonl(bpf_ntohs(sport) & PORT_IN_LABEL);
}

/* A packet whose source port is to change. */
struct rewrite {
	__u32 udp_offset;
	__u32 udp_bytes;
	__be16 from;
	__be16 to;
	__u32 icrc_change;
	__be32 first_word; /* of the IPv6 header, with its new flow label; 0: stays as it is */
	bool has_checksum;
};

/* By helpers, which make the buffer writable and know of checksums left to the device. */
static __always_inline enum cwdp_reason rewrite_by_helpers(struct __sk_buff *skb,
							   const struct rewrite *rewrite)
{
	__u32 udp = rewrite->udp_offset, icrc_offset = udp + rewrite->udp_bytes - ICRC_BYTES, icrc, old;

	if (bpf_skb_load_bytes(skb, icrc_offset, &old, sizeof(old)))
		return CWDP_STEER_BAD_LENGTH;
	icrc = old ^ rewrite->icrc_change;
	if (bpf_skb_store_bytes(skb, icrc_offset, &icrc, sizeof(icrc), 0))
		return CWDP_STEER_NO_MEMORY;
	bpf_skb_store_bytes(skb, udp, &rewrite->to, sizeof(rewrite->to), 0);
	if (rewrite->first_word)
		bpf_skb_store_bytes(skb, udp - sizeof(struct ipv6hdr), &rewrite->first_word,
				    sizeof(rewrite->first_word), 0);
	if (rewrite->has_checksum) {
		bpf_l4_csum_replace(skb, udp + UDP_CHECK, rewrite->from, rewrite->to,
				    sizeof(rewrite->to) | BPF_F_MARK_MANGLED_0);
		bpf_l4_csum_replace(skb, udp + UDP_CHECK, old, icrc, sizeof(icrc) | BPF_F_MARK_MANGLED_0);
	}
	return CWDP_STEER_REWRITTEN;
}

/* The word with the flow label, where that is to follow the port; else NULL. */
static __always_inline __be32 *flow_label_of(struct __sk_buff *skb, const struct roce_packet *roce,
					     const struct cwdp_qp *qp)
{
	__be32 *word = header_at(skb_data(skb), roce->udp_offset - sizeof(struct ipv6hdr));

	if (roce->ip_header_bytes != sizeof(struct ipv6hdr) || !(qp->flags & CWDP_STEER_FLOW_LABEL) ||
	    (void *)(word + 1) > (void *)(long)skb->data_end)
		return NULL;
	return word;
}

/* Rewrite the source port, and tell by its reason whether that could be done; pointers into the packet are
 * void afterwards. */
static __always_inline enum cwdp_reason write_sport(struct __sk_buff *skb, const struct roce_packet *roce,
						    struct cwdp_qp *qp, __be16 sport)
{
	struct cwdp_probe_packet *packet = header_at(skb_data(skb), roce->udp_offset);
	__be32 *label = flow_label_of(skb, roce, qp);
	void *end = (void *)(long)skb->data_end;
	struct rewrite rewrite = {.udp_offset = roce->udp_offset, .from = roce->sport, .to = sport};
	__u32 *icrc;

	if (skb->gso_size)
		return CWDP_STEER_GSO;
	if ((void *)(&packet->bth + 1) > end)
		return CWDP_STEER_BAD_LENGTH;
	rewrite.udp_bytes = steerable_bytes(roce, bpf_ntohs(packet->len), skb->len);
	if (!rewrite.udp_bytes)
		return CWDP_STEER_BAD_LENGTH;
	rewrite.has_checksum = packet->check;
	rewrite.icrc_change = icrc_change(qp, rewrite.udp_bytes, rewrite.from ^ sport);
	if (label)
		rewrite.first_word = with_flow_label(*label, sport);
	icrc = (void *)packet + ((rewrite.udp_bytes - ICRC_BYTES) & UDP_MASK);
	if (rewrite.has_checksum || (void *)(icrc + 1) > end)
		return rewrite_by_helpers(skb, &rewrite);
	*icrc ^= rewrite.icrc_change;
	packet->sport = sport;
	if (label)
		*label = rewrite.first_word;
	return CWDP_STEER_REWRITTEN;
}

/* Have a packet leave from a source port; whether it does, counted where it did not come with it. */
static __always_inline bool rewrite_sport(struct __sk_buff *skb, struct roce_packet *roce, struct cwdp_qp *qp,
					  __be16 sport)
{
	enum cwdp_reason reason;

	if (roce->sport == sport)
		return true;
	reason = write_sport(skb, roce, qp, sport);
	count(reason);
	if (reason != CWDP_STEER_REWRITTEN)
		return false;
	roce->sport = sport;
	return true;
}
