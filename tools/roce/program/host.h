/* SPDX-License-Identifier: Apache-2.0 */
/* The queue pairs of one host at work: packets in and out, timers, and commands from standard input. */
#pragma once

#include "packets/net.h"
#include "plan.h"

#define FAMILIES 2

/* What came that belongs to no queue pair, or that none may see. */
struct host_counters {
	uint64_t not_ours;  /* probes of cwdp's, or not RoCEv2 */
	uint64_t malformed; /* lengths that contradict each other */
	uint64_t unknown_qp;
	uint64_t unknown_opcode;
	uint64_t icrc_errors;
	uint64_t checksum_errors; /* of UDP, where there is one */
};

struct host {
	struct plan *plan;
	struct ring rings[FAMILIES];
	int ring_total;
	int epoll;
	struct host_counters counters;
	struct qp_entry *entries; /* of all queue pairs, by QPN */
	struct responder **answering;
	size_t answering_total;
	uint64_t start_ns; /* UINT64_MAX: not told yet */
	uint64_t until_ns;
	uint64_t snapshot_ns; /* the next one */
	uint64_t realtime_offset_ns;
	uint64_t offset_until_ns; /* when to measure that again */
	bool said_done;
	bool said_failed;
	bool stopped;
};

/* Opens the sockets, says that it is ready, and works until it is told to stop or standard input ends. */
void host_run(struct plan *plan);
