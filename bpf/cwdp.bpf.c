/* SPDX-License-Identifier: GPL-2.0-only */
/* The dataplane of one interface. */
#include "pipeline.h"
#include "tcp/timers.h"

SEC("xdp.frags")
int xdp_ingress(struct xdp_md *ctx)
{
	return ingress(ctx);
}

SEC("tc")
int tc_egress(struct __sk_buff *skb)
{
	return egress(skb);
}

SEC("tc")
int tc_ingress(struct __sk_buff *skb)
{
	return detour_ingress(skb);
}

SEC("iter/tcp")
int tcp_timers(struct bpf_iter__tcp *ctx)
{
	return set_timers(ctx);
}

SEC("syscall")
int close_bursts(void *ctx)
{
	(void)ctx;
	return close_bursts_over();
}

char _license[] SEC("license") = "GPL";
