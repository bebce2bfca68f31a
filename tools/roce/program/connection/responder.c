/* SPDX-License-Identifier: Apache-2.0 */
#include "connection/responder.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"

#define CNP_INTERVAL_NS 50000

static struct stamp stamp_of(const struct packet *packet)
{
	struct stamp stamp = {0};

	if (packet->payload_bytes >= sizeof(stamp)) {
		memcpy(&stamp, packet->payload, sizeof(stamp));
		stamp.sent_ns = be64toh(stamp.sent_ns);
		stamp.previous_sent_ns = be64toh(stamp.previous_sent_ns);
		stamp.round = be64toh(stamp.round);
	}
	return stamp;
}

static uint64_t *seen_word(struct responder *responder, uint64_t sequence, uint64_t *bit)
{
	*bit = 1ull << sequence % 64;
	return &responder->seen[sequence % SEEN_PACKETS / 64];
}

/* Had all packets from the expected one on come in this round, too early, and been dropped here? */
static bool all_seen(struct responder *responder, uint32_t missing)
{
	uint64_t bit;

	if (missing > SEEN_PACKETS)
		return false;
	for (uint64_t sequence = responder->expected; missing; sequence++, missing--)
		if (!(*seen_word(responder, sequence, &bit) & bit))
			return false;
	return true;
}

static void open_gap(struct responder *responder, const struct stamp *stamp, uint32_t missing,
		     uint64_t now_ns)
{
	if (!responder->gaps)
		responder->gaps = need(calloc(LOG_LIMIT, sizeof(*responder->gaps)));
	if (responder->gap_total < LOG_LIMIT)
		responder->gaps[responder->gap_total] =
			(struct gap){.at_ns = now_ns,
				     .last_arrival_ns = responder->arrival_ns,
				     .last_lost_sent_ns = stamp->previous_sent_ns,
				     .psn = qp_psn(&responder->qp, responder->expected),
				     .missing = missing};
	responder->gap_total++;
	responder->gap_overtaken = all_seen(responder, missing);
	responder->in_gap = true;
	responder->nak_due = true;
}

/* What is of the same round as the packets that overtook it is no retransmission. */
static void close_gap(struct responder *responder, const struct stamp *stamp, uint64_t now_ns)
{
	if (stamp->round && stamp->round == responder->round)
		responder->gap_overtaken = true;
	if (responder->gap_total <= LOG_LIMIT) {
		struct gap *gap = &responder->gaps[responder->gap_total - 1];

		gap->resumed_ns = now_ns;
		gap->overtaken = responder->gap_overtaken;
	}
	responder->gaps_overtaken += responder->gap_overtaken;
	responder->in_gap = false;
	responder->nak_due = false;
}

static void drop_early(struct responder *responder, const struct packet *packet, uint32_t ahead,
		       uint64_t now_ns)
{
	struct stamp stamp = stamp_of(packet);
	uint64_t bit, *word = seen_word(responder, responder->expected + ahead, &bit);

	if (stamp.round != responder->round)
		memset(responder->seen, 0, sizeof(responder->seen));
	responder->round = stamp.round;
	responder->out_of_sequence++;
	if (!responder->in_gap)
		open_gap(responder, &stamp, ahead, now_ns);
	if (stamp.round && ahead < SEEN_PACKETS)
		*word |= bit;
}

static void note_pause(struct responder *responder, uint64_t start_ns, uint64_t lasted_ns)
{
	struct pause *pauses = responder->pauses;

	if (lasted_ns <= pauses[responder->shortest_pause].lasted_ns)
		return;
	pauses[responder->shortest_pause] = (struct pause){.start_ns = start_ns, .lasted_ns = lasted_ns};
	for (uint32_t i = 0; i < PAUSES_KEPT; i++)
		if (pauses[i].lasted_ns < pauses[responder->shortest_pause].lasted_ns)
			responder->shortest_pause = i;
}

static void note_delivery(struct responder *responder, const struct stamp *stamp, uint64_t now_ns)
{
	if (!responder->packets)
		responder->first_ns = now_ns;
	else if (now_ns > responder->last_ns)
		note_pause(responder, responder->last_ns, now_ns - responder->last_ns);
	responder->last_ns = now_ns;
	if (stamp->sent_ns)
		histogram_add(&responder->owd, now_ns > stamp->sent_ns ? now_ns - stamp->sent_ns : 0);
}

static void deliver(struct responder *responder, const struct packet *packet, uint64_t now_ns)
{
	struct stamp stamp = stamp_of(packet);
	uint64_t bit, *word = seen_word(responder, responder->expected, &bit);

	*word &= ~bit;
	if (responder->in_gap)
		close_gap(responder, &stamp, now_ns);
	note_delivery(responder, &stamp, now_ns);
	responder->expected++;
	responder->packets++;
	responder->bytes += packet->payload_bytes;
	if (ends_message(packet->opcode))
		responder->messages++;
	if (packet->ack_request)
		responder->ack_due = true;
}

static void note_congestion(struct responder *responder, const struct packet *packet, uint64_t now_ns)
{
	if ((packet->tos & ECN_MASK) != ECN_CE)
		return;
	responder->ce++;
	if (now_ns - responder->cnp_ns >= CNP_INTERVAL_NS) {
		responder->cnp_ns = now_ns;
		responder->cnp_due = true;
	}
}

void responder_on_write(struct responder *responder, const struct packet *packet, uint64_t now_ns)
{
	uint32_t ahead = (packet->psn - qp_psn(&responder->qp, responder->expected)) & PSN_MASK;

	note_congestion(responder, packet, now_ns);
	if (ahead == 0) {
		deliver(responder, packet, now_ns);
	} else if (ahead < PSN_HALF) {
		drop_early(responder, packet, ahead, now_ns);
	} else {
		responder->duplicates++;
		responder->ack_due = true;
	}
	responder->arrival_ns = now_ns;
}

bool responder_answer(const struct responder *responder, struct transport *transport)
{
	*transport = (struct transport){.opcode = RC_ACKNOWLEDGE, .msn = responder->messages};
	if (responder->cnp_due) {
		*transport = (struct transport){.opcode = CNP};
	} else if (responder->nak_due) {
		transport->syndrome = SYNDROME_NAK_SEQUENCE;
		transport->psn = qp_psn(&responder->qp, responder->expected);
	} else if (responder->ack_due) {
		transport->syndrome = SYNDROME_ACK;
		transport->psn = qp_psn(&responder->qp, responder->expected - 1);
	} else {
		return false;
	}
	return true;
}

void responder_answered(struct responder *responder, const struct transport *transport)
{
	if (transport->opcode == CNP) {
		responder->cnp_due = false;
		responder->cnps++;
	} else if (transport->syndrome == SYNDROME_NAK_SEQUENCE) {
		/* It acknowledges all before as well. */
		responder->nak_due = false;
		responder->ack_due = false;
		responder->naks++;
	} else {
		responder->ack_due = false;
		responder->acks++;
	}
}
