/* SPDX-License-Identifier: GPL-2.0-only */
/* A queue pair whose path was given up goes back to the last PSN acknowledged at once.
 *
 * What was lost last is noticed by nobody: no later packet makes the far end say what it lacks, so the sender
 * waits for its timer. The agent says it in the far end's place: a NAK (PSN sequence error, IBTA 9.7.5.2.2)
 * of the PSN behind the last that was acknowledged. It comes here as a whole packet, from the far end's
 * address to this host's, with its ICRC, and is given to this host where the queue pair's packets take
 * another way now than their path. The agent need not know whether they do: it is decided here, as for a
 * packet of the queue pair. */
#pragma once

#include "steering/detour.h"
#include "queue_pairs/telemetry.h"

static __always_inline bool is_go_back(const struct frame *frame)
{
	const struct cwdp_bth *bth = &frame->packet->bth;
	const __u8 *aeth = (void *)(bth + 1);

	return frame->packet->dport == bpf_htons(CWDP_ROCE_PORT) &&
	       bth->opcode == (ROCE_RC | ROCE_ACKNOWLEDGE) && (void *)(aeth + 1) <= frame->end &&
	       *aeth == AETH_NAK_PSN_SEQUENCE;
}

/* The queue pair is known by what its own packets are for: the address that the NAK is from, and the QPN that
 * the socket's priority says. */
static __always_inline enum cwdp_reason judge_go_back(const struct frame *frame, __u32 qpn)
{
	struct cwdp_control *settings = find_control();
	struct roce_packet packet = {};
	struct cwdp_qp *qp;

	if (!settings)
		return CWDP_GO_BACK_NOT_STEERED;
	roce_describe(&packet, frame, CWDP_INGRESS);
	packet.key.qpn = qpn & CWDP_QPN_MAX;
	qp = qp_known(CWDP_EGRESS, &packet.key, settings->hash_seed);
	if (!qp || !(qp->flags & CWDP_STEER_ON) || !(qp->flags & CWDP_STEER_BACKUP))
		return CWDP_GO_BACK_NOT_STEERED;
	return choose_route(settings, qp) == ROUTE_PRIMARY ? CWDP_GO_BACK_NOT_SWITCHED : CWDP_GO_BACK_GIVEN;
}

/* Egress: a NAK of the agent's. */
__noinline int go_back(struct __sk_buff *skb)
{
	enum cwdp_reason reason;
	struct frame frame;
	__u8 mac[ETH_ALEN];

	if (!parse_roce(&frame, skb_data(skb), (void *)(long)skb->data_end))
		return TC_ACT_SHOT;
	__builtin_memcpy(mac, frame.eth->h_source, sizeof(mac));
	reason = judge_go_back(&frame, skb->priority);
	count(reason);
	if (reason != CWDP_GO_BACK_GIVEN || bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}
