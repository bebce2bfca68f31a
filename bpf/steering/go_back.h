/* SPDX-License-Identifier: GPL-2.0-only */
/* A queue pair whose path was given up goes back to the last PSN acknowledged at once, and says again what it
 * acknowledged last.
 *
 * What was lost last is noticed by nobody: no later packet makes the far end say what it lacks, so the sender
 * waits for its timer. The agent says it in the far end's place: a NAK (PSN sequence error, IBTA 9.7.5.2.2)
 * of the PSN behind the last that was acknowledged. It comes here as a whole packet, from the far end's
 * address to this host's, with its ICRC, and is given to this host where the queue pair's packets take
 * another way now than their path. The agent need not know whether they do: it is decided here, as for a
 * packet of the queue pair.
 *
 * Nor does anybody notice that the last acknowledgement was lost. The agent sends it again in the queue
 * pair's place; it is judged alike, and leaves as a packet of the queue pair. */
#pragma once

#include "steering/detour.h"
#include "queue_pairs/telemetry.h"

#define LEAVES_AS_ROCE 0x100 /* no verdict of tc: the packet is treated as one of a queue pair */

/* The syndrome of what the agent says for a queue pair; ROCE_NO_SYNDROME of any other packet. */
static __always_inline __u8 go_back_syndrome(const struct frame *frame)
{
	const struct cwdp_bth *bth = &frame->packet->bth;
	const __u8 *aeth = (void *)(bth + 1);

	if (frame->packet->dport != bpf_htons(CWDP_ROCE_PORT) ||
	    bth->opcode != (ROCE_RC | ROCE_ACKNOWLEDGE) || (void *)(aeth + 1) > frame->end)
		return ROCE_NO_SYNDROME;
	return *aeth == AETH_NAK_PSN_SEQUENCE || AETH_KIND(*aeth) == AETH_ACK ? *aeth : ROCE_NO_SYNDROME;
}

/* The queue pair is known by what its own packets are for. Of a NAK that is the address that it is from, and
 * the QPN that the socket's priority says. */
static __always_inline enum cwdp_reason judge_go_back(const struct frame *frame, bool is_nak, __u32 qpn)
{
	struct cwdp_control *settings = find_control();
	struct roce_packet packet = {};
	struct cwdp_qp *qp;

	if (!settings)
		return CWDP_GO_BACK_NOT_STEERED;
	roce_describe(&packet, frame, is_nak ? CWDP_INGRESS : CWDP_EGRESS);
	if (is_nak)
		packet.key.qpn = qpn & CWDP_QPN_MAX;
	qp = qp_known(CWDP_EGRESS, &packet.key, settings->hash_seed);
	if (!qp || !(qp->flags & CWDP_STEER_ON) || !(qp->flags & CWDP_STEER_BACKUP))
		return CWDP_GO_BACK_NOT_STEERED;
	return choose_route(settings, qp) == ROUTE_PRIMARY ? CWDP_GO_BACK_NOT_SWITCHED : CWDP_GO_BACK_GIVEN;
}

/* Egress: what the agent says for a queue pair. */
__noinline int go_back(struct __sk_buff *skb)
{
	enum cwdp_reason reason;
	struct frame frame;
	__u8 mac[ETH_ALEN];
	bool is_nak;

	if (!parse_roce(&frame, skb_data(skb), (void *)(long)skb->data_end))
		return TC_ACT_SHOT;
	__builtin_memcpy(mac, frame.eth->h_source, sizeof(mac));
	is_nak = go_back_syndrome(&frame) == AETH_NAK_PSN_SEQUENCE;
	reason = judge_go_back(&frame, is_nak, skb->priority);
	count(reason);
	if (reason != CWDP_GO_BACK_GIVEN)
		return TC_ACT_SHOT;
	if (!is_nak)
		return LEAVES_AS_ROCE;
	if (bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}
