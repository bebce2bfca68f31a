/* SPDX-License-Identifier: Apache-2.0 */
/* What both kinds of queue pair have: their names, their path, and from which source ports they were reached.
 */
#pragma once

#include "packets/net.h"
#include "packets/wire.h"

#define PSN_HALF  (1u << 23)
#define LOG_LIMIT 1000 /* events of one kind that a queue pair keeps; all are counted */

struct port_count {
	uint16_t port;
	uint64_t packets;
	uint64_t first_ns;
	uint64_t last_ns;
};

struct qp {
	uint32_t id; /* of the flow, the same at both ends */
	uint32_t qpn;
	uint32_t first_psn;
	struct path path;
	struct port_count *ports; /* UDP source ports of what came, in the order of their first use */
	uint32_t port_total;
	uint32_t port_last; /* the index of the one that came last */
	struct channel channel;
};

/* The first bytes of every payload that has room for them; times are CLOCK_MONOTONIC in ns. A receiver that
 * misses packets learns from the next one when the last of them was sent, and whether they may still come. */
struct stamp {
	uint64_t sent_ns;
	uint64_t previous_sent_ns; /* when the packet with the PSN before was sent last */
	uint64_t round;            /* from 1; a step back begins the next. No packet is sent twice in one */
};

/* Counts a packet under its source port. */
void qp_count_port(struct qp *qp, uint16_t port, uint64_t at_ns);

/* Sequence numbers count packets from 0 and never wrap; a PSN is their low 24 bits after the first PSN. */
static inline uint32_t qp_psn(const struct qp *qp, uint64_t sequence)
{
	return (qp->first_psn + sequence) & PSN_MASK;
}
