/* SPDX-License-Identifier: GPL-2.0-only */
/* For the tests: a packet from the agent's socket. BPF_PROG_TEST_RUN makes a socket for each call; here it
 * becomes the agent's, and the packet goes on to the dataplane's egress program. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "types.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

SEC("tc")
int tc_from_agent(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct cwdp_control *settings = bpf_map_lookup_elem(&control, &zero);

	if (settings)
		settings->senders[CWDP_SENDER_PAIRS_IPV4] = bpf_get_socket_cookie(skb);
	bpf_tail_call(skb, &egress, 0);
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "GPL";
