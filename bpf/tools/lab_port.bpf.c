/* SPDX-License-Identifier: GPL-2.0-only */
/* A switch port of the lab that faces a host. It passes everything: that an XDP program is there gives the
 * veth the NAPI that the host's XDP_TX needs. (GRO gives it one too, but the sender kicks it only if it sees
 * an XDP program, so the ring would fill up and stay full.) */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int lab_port(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
