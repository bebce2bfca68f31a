/* SPDX-License-Identifier: GPL-2.0-only */
/* The lab's faulty cable: a tc classifier that drops a share of what passes and counts what it dropped, and
 * that may change the class of what it passes. */
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* A packet is dropped if a random 32-bit number is below this: 2^32 drops every packet, 0 none. */
const volatile __u64 drop_threshold;

/* Bits of TOS or traffic class that get another value, and their value; no bits change nothing. */
const volatile __u32 tos_mask;
const volatile __u32 tos_value;

__u64 dropped_packets;

static __always_inline __u8 changed(__u8 tos)
{
	return (tos & ~tos_mask) | (tos_value & tos_mask);
}

static __always_inline void change_ipv4(struct __sk_buff *skb)
{
	__u8 old, new;

	if (bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct iphdr, tos), &old, sizeof(old)))
		return;
	new = changed(old);
	if (new == old)
		return;
	bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), bpf_htons(old), bpf_htons(new),
			    sizeof(__u16));
	bpf_skb_store_bytes(skb, ETH_HLEN + offsetof(struct iphdr, tos), &new, sizeof(new), 0);
}

/* The traffic class lies behind the first four bits. No checksum is over it. */
static __always_inline void change_ipv6(struct __sk_buff *skb)
{
	__be16 first;
	__u16 old;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &first, sizeof(first)))
		return;
	old = bpf_ntohs(first);
	first = bpf_htons((old & 0xf00f) | changed(old >> 4) << 4);
	bpf_skb_store_bytes(skb, ETH_HLEN, &first, sizeof(first), BPF_F_RECOMPUTE_CSUM);
}

SEC("tc")
int lab_link(struct __sk_buff *skb)
{
	if (bpf_get_prandom_u32() < drop_threshold) {
		__sync_fetch_and_add(&dropped_packets, 1);
		return TC_ACT_SHOT;
	}
	if (tos_mask && skb->protocol == bpf_htons(ETH_P_IP))
		change_ipv4(skb);
	else if (tos_mask && skb->protocol == bpf_htons(ETH_P_IPV6))
		change_ipv6(skb);
	return TC_ACT_UNSPEC;
}

char _license[] SEC("license") = "GPL";
