/* SPDX-License-Identifier: GPL-2.0-only */
/* From a probe's reason to a packet's verdict. Whatever is not a sound probe leaves as it came. */
#pragma once

#include <linux/pkt_cls.h>

#include "probe.h"

static __always_inline int ingress(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	enum cwdp_reason reason;
	struct cwdp_probe *probe;
	struct frame frame;
	__u64 now;

	if (!parse_probe_port(&frame, data, end) || !is_probe(&frame))
		return XDP_PASS;
	now = clock_local_ns();
	probe = frame.probe;
	if (!probe_length_ok(&frame))
		reason = CWDP_BAD_LENGTH;
	else if (probe->version != CWDP_PROBE_VERSION)
		reason = CWDP_BAD_VERSION;
	else if (probe->kind == CWDP_PROBE_REQUEST)
		reason = probe_reflect(&frame, now);
	else if (probe->kind == CWDP_PROBE_REPLY)
		reason = probe_accept(&frame, now);
	else
		reason = CWDP_BAD_KIND;
	count(reason);
	if (reason == CWDP_REQUEST_REFLECTED)
		return XDP_TX;
	return reason == CWDP_REPLY_ACCEPTED ? XDP_DROP : XDP_PASS;
}

static __always_inline int egress(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct frame frame;

	if (skb->mark != CWDP_MARK)
		return TC_ACT_UNSPEC;
	if (parse_probe_port(&frame, data, end) && is_probe(&frame) && probe_length_ok(&frame))
		count(probe_send(&frame));
	else
		count(CWDP_PROBE_BAD_TEMPLATE);
	return TC_ACT_UNSPEC;
}
