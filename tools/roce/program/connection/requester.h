/* SPDX-License-Identifier: Apache-2.0 */
/* The sending side of a reliable connection: RDMA WRITE messages behind a window, go-back-N
 * (IBTA 9.7). No I/O and no clock: the caller brings packets and times in ns of CLOCK_MONOTONIC. */
#pragma once

#include "common/histogram.h"
#include "connection/qp.h"

/* A step back to the oldest packet without acknowledgement. */
struct go_back {
	uint64_t at_ns;
	uint64_t first_sent_ns; /* when the packets that will be sent again were sent last: the first */
	uint64_t last_sent_ns;  /* and the last of them */
	uint32_t psn;           /* of the first */
	uint32_t packets;
	bool timeout; /* else a NAK */
};

struct requester {
	struct qp qp;

	uint32_t mtu;
	uint32_t window;    /* packets without acknowledgement */
	uint32_t ack_every; /* packets from one request for one to the next, at most half a window */
	uint32_t retries;   /* without progress, before the queue pair fails */
	uint64_t message_bytes;
	uint64_t total_bytes; /* 0: until told to finish */
	uint64_t rate_bps;    /* of Ethernet frames without FCS; 0: unlimited */
	uint64_t timeout_ns;
	bool gated; /* sends what is posted only */

	/* Sequence numbers: acked <= next <= highest <= acked + window. */
	uint64_t acked;   /* all before it are acknowledged */
	uint64_t next;    /* the one to send now */
	uint64_t highest; /* the first that was never sent */
	uint64_t limit;   /* the first that will never be sent */
	uint64_t pace_ns; /* not to send before */
	uint64_t progress_ns;
	uint32_t tries;
	bool failed;
	uint64_t *sent_ns;    /* when each was sent last, by sequence number modulo window */
	uint64_t *started_ns; /* when the first packet of each message was sent, by message modulo window */

	uint64_t first_ns;
	uint64_t last_ns; /* of the last acknowledgement that brought progress */
	uint64_t sent_packets;
	uint64_t retransmitted_packets;
	uint64_t acks;
	uint64_t naks;
	uint64_t cnps;
	uint64_t timeouts;
	uint64_t messages; /* completed */
	uint64_t go_back_total;
	struct go_back *go_backs;
	struct histogram completion; /* of messages: from the first packet's sending to the acknowledgement */
};

/* Fills in what follows from the settings. */
void requester_init(struct requester *requester);

/* Has it send no more than what is posted from now on, a message each. */
void requester_gate(struct requester *requester);
void requester_post(struct requester *requester);

/* Posts no more messages, unless it is gated: those begun are finished. */
void requester_finish(struct requester *requester);

/* Has everything been acknowledged, or has the queue pair failed? */
bool requester_done(const struct requester *requester);

/* When it has something to send or a timer ends: the past for now, UINT64_MAX for never. */
uint64_t requester_send_ns(const struct requester *requester);
uint64_t requester_timer_ns(const struct requester *requester);

/* Writes the packet to be sent now to `out`; returns its length. Nothing has changed until it is told as
 * sent. */
size_t requester_build(const struct requester *requester, uint64_t now_ns, uint8_t *out);
void requester_sent(struct requester *requester, uint64_t now_ns, size_t length);

void requester_on_timer(struct requester *requester, uint64_t now_ns);
void requester_on_acknowledge(struct requester *requester, const struct packet *packet, uint64_t now_ns);

/* Bytes of messages that were acknowledged. */
uint64_t requester_acked_bytes(const struct requester *requester);
