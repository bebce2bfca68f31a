/* SPDX-License-Identifier: GPL-2.0-only */
/* Which slice a queue pair belongs to, and when its packets may leave. */
#pragma once

#include "qp.h"

/* A queue pair's slice, looked up once per generation. */
static __always_inline void slice_assign(struct cwdp_qp *qp, const struct frame *frame)
{
	(void)frame;
	qp->slice = 0;
}

/* Give a packet its class and its time of departure. */
static __always_inline void slice_pace(struct __sk_buff *skb, struct cwdp_qp *qp)
{
	__u64 now, departure;

	if (qp->priority)
		skb->priority = qp->priority;
	if (!qp->pace_q18)
		return;
	now = bpf_ktime_get_ns();
	departure = qp->departure_ns;
	if (departure < now)
		departure = now;
	qp->departure_ns = departure + ((__u64)skb->len * qp->pace_q18 >> 18);
	skb->tstamp = departure;
}
