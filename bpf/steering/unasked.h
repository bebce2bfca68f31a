/* SPDX-License-Identifier: GPL-2.0-only */
/* Which path a steered queue pair takes while nobody sends pulses: the agent is stopped, or dead.
 *
 * Then only what queue pairs do tells of a path. One that sends a request again, or acknowledges again what
 * it has acknowledged, was not heard, or heard no answer. So the queue pairs of its path take their backup,
 * and come back if they are not heard there either, each time after a while. It takes the timer of a sender,
 * not milliseconds, and may be a packet lost to a full queue; to move for that does no harm. A path that was
 * given up by pulses stays so. With the next pulse all this is void. */
#pragma once

#include "queue_pairs/telemetry.h"
#include "steering/failover.h"

#define UNASKED_FACTOR 10 /* so many times as long as a path has to answer, none has been asked */

/* Was it sent before? To be asked before the packet is counted. Responses to a READ are asked for again by
 * the far end; they say as much of a path. */
static __always_inline bool is_said_again(const struct cwdp_qp *qp, const struct roce_packet *packet)
{
	__u8 operation = packet->opcode & BTH_OPERATION;
	__u32 before;

	if (roce_is_acknowledge(packet->opcode)) {
		before = qp->ack_sent;
		return AETH_KIND(AETH_SYNDROME(packet->aeth)) == AETH_ACK && before & QP_PSN_KNOWN &&
		       psn_distance(packet->psn, before) <= 0;
	}
	if (!roce_has_stream(packet->opcode) || operation == ROCE_ATOMIC_ACKNOWLEDGE)
		return false;
	return psn_goes_back(roce_is_response(operation) ? qp->next_response_psn : qp->next_psn, packet->psn);
}

/* Has something been said again over this path, since the last pulse and later than over the other? */
static __always_inline bool is_doubted(const struct cwdp_control *settings, __u32 number, __u32 other_number)
{
	struct cwdp_path *path, *other;

	if (settings->again_ns <= settings->asked_ns)
		return false;
	path = find_path(number);
	other = find_path(other_number);
	return path && other && path->again_ns > settings->asked_ns && path->again_ns > other->again_ns &&
	       other->state == CWDP_PATH_UP;
}

/* A packet says again what went over `path`: is that to be left for `other`? */
__noinline int doubt_path(struct cwdp_control *settings, __u32 number, __u32 other_number)
{
	struct cwdp_path *path = find_path(number), *other = find_path(other_number);
	__u64 now, rest_ns;

	if (!settings || !path || !other || !settings->asked_ns || other->state != CWDP_PATH_UP)
		return 0;
	now = clock_local_ns();
	rest_ns = UNASKED_FACTOR * settings->dead_after_ns;
	if ((__s64)(now - settings->asked_ns) <= (__s64)rest_ns ||
	    (__s64)(now - path->again_ns) <= (__s64)rest_ns ||
	    (__s64)(now - other->again_ns) <= (__s64)rest_ns)
		return 0;
	path->again_ns = now;
	WRITE_ONCE(settings->again_ns, now);
	count(CWDP_PATH_DOUBTED);
	return 0;
}
