/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving side of a reliable connection: in order or not at all, acknowledged (IBTA 9.7),
 * congestion notified (IBTA Annex A17). No I/O and no clock: the caller brings packets and times in ns of
 * CLOCK_MONOTONIC. */
#pragma once

#include "common/histogram.h"
#include "connection/qp.h"

#define PAUSES_KEPT  64
#define SEEN_PACKETS 4096 /* further ahead than this is taken as not seen before */

/* A packet came before others that should have come first. */
struct gap {
	uint64_t at_ns;
	uint64_t last_arrival_ns;   /* of the packet before */
	uint64_t last_lost_sent_ns; /* when the last of the missing was sent; 0 where payloads have no stamps
				     */
	uint64_t resumed_ns;        /* when the first of the missing came; 0 if it never did */
	uint32_t psn;               /* of the first of the missing */
	uint32_t missing;
	bool overtaken; /* nothing was lost: it was late, or had come too early and been dropped here */
};

/* A time without a delivery. */
struct pause {
	uint64_t start_ns;
	uint64_t lasted_ns;
};

struct responder {
	struct qp qp;

	uint64_t expected; /* sequence number of the packet that has to come next */
	bool ack_due;
	bool nak_due;
	bool cnp_due;
	bool queued;        /* for its turn to answer; the caller's */
	uint64_t used;      /* messages that a rank has gone on with; the caller's */
	bool in_gap;        /* a NAK was sent for what is expected: not another one */
	bool gap_overtaken; /* the gap that was opened last, as far as is known */
	uint64_t round;     /* of the packet that came out of sequence last, see struct stamp */
	uint64_t seen[SEEN_PACKETS /
		      64]; /* came out of sequence in that round: a bit each, by sequence number */
	uint64_t cnp_ns;   /* of the last CNP */

	uint64_t first_ns; /* of deliveries */
	uint64_t last_ns;
	uint64_t arrival_ns;              /* of any packet, the last */
	struct pause pauses[PAUSES_KEPT]; /* the longest times between two deliveries, in no order */
	uint32_t shortest_pause;          /* the index of the shortest of them */
	uint64_t packets;                 /* delivered, as are bytes and messages */
	uint64_t bytes;
	uint64_t messages;
	uint64_t duplicates;
	uint64_t out_of_sequence;
	uint64_t ce;
	uint64_t acks;
	uint64_t naks;
	uint64_t cnps;
	uint64_t gap_total;
	uint64_t gaps_overtaken;
	struct gap *gaps;
	struct histogram owd; /* of packets delivered: from the stamp to the arrival */
};

/* Takes in a packet of a WRITE. */
void responder_on_write(struct responder *responder, const struct packet *packet, uint64_t now_ns);

/* Says what to answer, if anything; nothing has changed until it is told as answered. */
bool responder_answer(const struct responder *responder, struct transport *transport);
void responder_answered(struct responder *responder, const struct transport *transport);
