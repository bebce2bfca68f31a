/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of one host, as tools/roce/flows.py writes it: a line for each queue pair, of words NAME=VALUE.
 *
 *	snapshots interval_ns=100000000
 *	send id=1 local=10.1.0.1 remote=10.2.0.1 sport=50000 qpn=17 remote_qpn=18 first_psn=0 mtu=4096 ...
 *	receive id=2 local=10.1.0.1 remote=10.2.0.2 sport=50001 qpn=19 remote_qpn=20 first_psn=77 ...
 *
 * After the queue pairs come the ranks, as tools/roce/collective/rank.py writes them: after each its steps,
 * after each step the messages that it waits for and posts.
 *
 *	rank id=0 iterations=10 seed=1 stall_ns=0 stall_every_ns=0
 *	step compute_ns=300000000 jitter_ns=15000000
 *	await flow=2
 *	post flow=1
 */
#pragma once

#include "collective/rank.h"
#include "connection/requester.h"
#include "connection/responder.h"

struct plan {
	uint64_t snapshot_ns; /* 0: none */
	struct requester *requesters;
	size_t requester_total;
	struct responder *responders;
	size_t responder_total;
	struct rank *ranks;
	size_t rank_total;
};

/* Reads a plan; exits with a message if there is something wrong with it. */
void plan_read(struct plan *plan, const char *file_name);
