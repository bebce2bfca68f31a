/* SPDX-License-Identifier: GPL-2.0-only */
/* A switch port of the lab that takes in what a host sends no faster than a queue of its own lets through:
 * what comes in leaves by another interface, a veth pair back into the switch. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

const volatile __u32 queue_ifindex;

SEC("tc")
int lab_inbound(struct __sk_buff *skb)
{
	(void)skb;
	return bpf_redirect(queue_ifindex, 0);
}

char _license[] SEC("license") = "GPL";
