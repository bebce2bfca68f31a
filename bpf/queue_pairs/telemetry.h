/* SPDX-License-Identifier: GPL-2.0-only */
/* What is counted of every queue pair, and which data packets are stamped. No packet is changed.
 *
 * Packets and bytes are added atomically. What follows PSNs is not: where two CPUs handle one queue pair in
 * one direction at the same instant, a gap or a retransmission may be counted wrongly, never a packet. */
#pragma once

#include "clock.h"
#include "maps.h"
#include "queue_pairs/bursts.h"
#include "queue_pairs/qp.h"

#define QP_PSN_KNOWN     (1U << 31)
#define QP_PSN_JUMP      (1U << 30) /* a READ request takes as many PSNs as its response has packets */
#define QP_PSN_NAK       (1U << 30) /* of what is acknowledged: by a NAK of a PSN sequence error */
#define PSN_WINDOW       64
#define PSN_FAR          (1 << 16)            /* more than any sender has under way */
#define QP_PSN_LAST(psn) (((psn)&0x3f) << 24) /* of what is sent: the end of the last PSN */

/* How far b lies before a in the circle of PSNs, negative where it lies behind. */
static __always_inline __s32 psn_distance(__u32 a, __u32 b)
{
	return (__s32)((a - b) << 8) >> 8;
}

/* Is nothing known of what comes before? A queue pair that is connected anew under a number that another one
 * had begins anywhere. */
static __always_inline bool psn_is_anew(__u32 next, __s32 ahead)
{
	return !(next & QP_PSN_KNOWN) || ahead > PSN_FAR || ahead < -PSN_FAR;
}

static __always_inline void psn_sent(struct cwdp_qp *qp, __u32 *next, __u32 psn)
{
	__s32 ahead = psn_distance(psn, *next);

	if (ahead < 0 && !psn_is_anew(*next, ahead)) {
		qp->psn_retransmitted++;
		*next = (*next & ~QP_PSN_LAST(~0U)) | QP_PSN_LAST(psn);
		return;
	}
	*next = QP_PSN_KNOWN | QP_PSN_LAST(psn) | ((psn + 1) & PSN_MASK);
}

/* Does a sender go back with this? One that is connected anew begins anywhere, and goes on from there. */
static __always_inline bool psn_goes_back(__u32 next, __u32 psn)
{
	return next & QP_PSN_KNOWN && psn_distance(psn, next) < 0 &&
	       (next & QP_PSN_LAST(~0U)) != QP_PSN_LAST(psn - 1);
}

static __always_inline void psn_response_arrived(struct cwdp_qp *qp, __u32 psn, bool starts)
{
	__u32 next = qp->next_response_psn;
	__s32 ahead = psn_distance(psn, next);

	if (psn_is_anew(next, ahead))
		ahead = 0;
	if (ahead < 0) {
		qp->psn_retransmitted++;
		return;
	}
	if (!starts)
		qp->psn_gaps += ahead;
	qp->next_response_psn = QP_PSN_KNOWN | ((psn + 1) & PSN_MASK);
}

/* One that was passed over, or one that has been here before? */
static __always_inline void psn_behind(struct cwdp_qp *qp, __u32 behind)
{
	__u64 bit = 1ULL << ((behind - 1) % PSN_WINDOW);

	if (behind > PSN_WINDOW || qp->psn_window & bit) {
		qp->psn_retransmitted++;
		return;
	}
	qp->psn_window |= bit;
	qp->psn_reordered++;
}

static __always_inline void psn_request_arrived(struct cwdp_qp *qp, __u32 psn, bool is_read)
{
	__u32 next = qp->next_psn;
	__s32 ahead = psn_distance(psn, next);

	if (psn_is_anew(next, ahead)) {
		qp->psn_window = ~0ULL;
		ahead = 0;
	} else if (ahead < 0) {
		psn_behind(qp, -ahead);
		return;
	}
	if (ahead && next & QP_PSN_JUMP)
		qp->psn_window = ~0ULL;
	else if (ahead) {
		qp->psn_gaps += ahead;
		qp->psn_window = ahead < PSN_WINDOW ? qp->psn_window << ahead : 0;
	}
	qp->psn_window = qp->psn_window << 1 | 1;
	qp->next_psn = QP_PSN_KNOWN | (is_read ? QP_PSN_JUMP : 0) | ((psn + 1) & PSN_MASK);
}

static __always_inline void follow_psn(struct cwdp_qp *qp, const struct roce_packet *packet,
				       enum cwdp_direction direction)
{
	__u8 operation = packet->opcode & BTH_OPERATION;

	if (!roce_has_stream(packet->opcode) || operation == ROCE_ATOMIC_ACKNOWLEDGE)
		return;
	if (direction == CWDP_EGRESS)
		psn_sent(qp, roce_is_response(operation) ? &qp->next_response_psn : &qp->next_psn,
			 packet->psn);
	else if (roce_is_response(operation))
		psn_response_arrived(qp, packet->psn,
				     operation == ROCE_READ_RESPONSE_FIRST ||
					     operation == ROCE_READ_RESPONSE_ONLY);
	else
		psn_request_arrived(qp, packet->psn, operation == ROCE_READ_REQUEST);
}

static __always_inline enum cwdp_nak nak_kind(__u8 syndrome)
{
	if (AETH_KIND(syndrome) == AETH_RNR_NAK)
		return CWDP_NAK_RNR;
	if (AETH_VALUE(syndrome) < CWDP_NAK_OTHER - CWDP_NAK_PSN_SEQUENCE)
		return CWDP_NAK_PSN_SEQUENCE + AETH_VALUE(syndrome);
	return CWDP_NAK_OTHER;
}

static __always_inline void follow_acknowledge(struct cwdp_qp *qp, const struct roce_packet *packet,
					       enum cwdp_direction direction)
{
	__u8 syndrome = AETH_SYNDROME(packet->aeth);
	__u32 kind = nak_kind(syndrome);

	if (AETH_KIND(syndrome) == AETH_RESERVED)
		return;
	if (AETH_KIND(syndrome) == AETH_ACK) {
		__sync_fetch_and_add(&qp->acks, 1);
		if (direction == CWDP_EGRESS)
			WRITE_ONCE(qp->ack_sent, (__u64)packet->aeth << 32 | QP_PSN_KNOWN | packet->psn);
		return;
	}
	if (kind < CWDP_NAK_KINDS)
		__sync_fetch_and_add(&qp->naks[kind], 1);
}

/* Which requests the far end has executed, by what it says of one: a NAK speaks of all before it
 * (IBTA 9.7.5). Not the furthest counts but the last said: to know too little does no harm, and a queue pair
 * that is connected anew begins anywhere. */
static __always_inline void follow_acknowledged(struct cwdp_qp *qp, const struct roce_packet *packet)
{
	__u32 acked = packet->psn, known = QP_PSN_KNOWN;
	__u8 operation = packet->opcode & BTH_OPERATION, syndrome = AETH_SYNDROME(packet->aeth);

	if (operation == ROCE_READ_RESPONSE_MIDDLE || operation == ROCE_READ_RESPONSE_LAST) {
		/* behind a gap it is not what the requester waits for */
		if ((qp->acked_psn & ~QP_PSN_NAK) != (known | ((acked - 1) & PSN_MASK)))
			return;
	} else if (syndrome == AETH_NAK_PSN_SEQUENCE) {
		known |= QP_PSN_NAK;
		acked--;
	} else if (AETH_KIND(syndrome) == AETH_RNR_NAK) {
		acked--;
	} else if (AETH_KIND(syndrome) != AETH_ACK) {
		return;
	}
	qp->acked_psn = known | (acked & PSN_MASK);
}

/* Count a packet. */
static __always_inline void telemetry(struct cwdp_qp *qp, const struct roce_packet *packet, __u32 direction)
{
	__u64 jiffies = bpf_jiffies64();
	__u16 tick = qp_tick(jiffies);

	if (packet->opcode != BTH_CNP && !roce_is_acknowledge(packet->opcode))
		follow_burst(qp, direction, jiffies);
	__sync_fetch_and_add(&qp->packets, 1);
	__sync_fetch_and_add(&qp->bytes, packet->ip_bytes);
	if ((qp->tick & ~QP_SETTLED) != tick) {
		qp->tick = QP_SETTLED | tick;
		qp->last_seen_ns = bpf_ktime_get_ns();
	}
	if ((packet->traffic_class & ECN_MASK) == ECN_CE)
		__sync_fetch_and_add(&qp->ce_marks, 1);
	if (packet->opcode == BTH_CNP)
		__sync_fetch_and_add(&qp->cnps, 1);
	else if (roce_is_acknowledge(packet->opcode))
		follow_acknowledge(qp, packet, direction);
	else
		follow_psn(qp, packet, direction);
	if (direction == CWDP_INGRESS && roce_is_answer(packet->opcode))
		follow_acknowledged(qp, packet);
}

/* Do both ends stamp this packet? Acknowledgements share the PSNs of what they acknowledge. */
static __always_inline bool is_sampled(const struct roce_packet *packet, __u32 below)
{
	__u32 hash = (packet->psn ^ packet->key.qpn << 8) * 0x9e3779b1U;

	hash = (hash ^ hash >> 15) * 0x85ebca77U;
	return hash < below && packet->opcode != BTH_CNP && !roce_is_acknowledge(packet->opcode);
}

/* Stamp a packet that left from, or came from, this source port. */
__noinline int take_sample(const struct roce_packet *packet, __be16 sport, __u32 direction)
{
	struct cwdp_control *settings = find_control();
	__u64 local_ns = clock_local_ns(), number;
	struct clock_reading reading;
	struct cwdp_sample *sample;
	__u32 index;

	if (!settings || !packet)
		return 0;
	number = __sync_fetch_and_add(&settings->sample_head, 1) + 1;
	index = number & (CWDP_SAMPLES - 1);
	sample = bpf_map_lookup_elem(&samples, &index);
	if (!sample)
		return 0;
	reading = clock_read_line(local_ns);
	WRITE_ONCE(sample->number, 0);
	sample->local_ns = local_ns;
	sample->offset_ns = reading.offset_ns;
	sample->bound_ns = reading.bound_ns;
	sample->psn = (__u32)packet->opcode << 24 | packet->psn;
	sample->key = packet->key;
	sample->sport = sport;
	sample->direction = direction;
	__sync_lock_test_and_set(&sample->number, number);
	return 0;
}
