/* SPDX-License-Identifier: GPL-2.0-only */
/* The lab's faulty cable: a tc classifier that drops a share of what passes, and counts what it dropped. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

/* A packet is dropped if a random 32-bit number is below this: 2^32 drops every packet, 0 none. */
const volatile __u64 drop_threshold;

__u64 dropped_packets;

SEC("tc")
int lab_link(struct __sk_buff *skb)
{
	(void)skb;
	if (bpf_get_prandom_u32() >= drop_threshold)
		return TC_ACT_UNSPEC;
	__sync_fetch_and_add(&dropped_packets, 1);
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "GPL";
