/* SPDX-License-Identifier: GPL-2.0-only */
/* For the benchmark: the dataplane over and over the same probe, and what that costs without the dataplane.
 *
 * BPF_PROG_TEST_RUN does not put the packet back between two runs: a reflected request would be a reply. So a
 * program here puts back what the dataplane has changed, and another does nothing else. */
#include "hooks.h"

#define FRAME_WORDS 18

struct bench_frame {
	__u64 words[FRAME_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench_frame);
} bench_frame SEC(".maps");

/* The whole frame, which is at least as long as struct bench_frame, from the map. */
static __always_inline void put_frame_back(struct xdp_md *ctx)
{
	__u64 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct bench_frame *kept;
	__u32 zero = 0;

	kept = bpf_map_lookup_elem(&bench_frame, &zero);
	if (!kept || data + FRAME_WORDS > end)
		return;
#pragma unroll
	for (int i = 0; i < FRAME_WORDS; i++)
		data[i] = kept->words[i];
}

/* The only slot that the benchmark uses waits for its reply again. */
static __always_inline void put_slot_back(void)
{
	__u32 zero = 0;
	struct cwdp_slot *slot = bpf_map_lookup_elem(&slots, &zero);

	if (slot)
		slot->tag = CWDP_SLOT_SENT;
}

SEC("xdp.frags")
int xdp_empty(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}

SEC("tc")
int tc_empty(struct __sk_buff *skb)
{
	(void)skb;
	return TC_ACT_UNSPEC;
}

SEC("xdp.frags")
int xdp_reflect(struct xdp_md *ctx)
{
	int verdict = ingress(ctx);

	put_frame_back(ctx);
	return verdict;
}

SEC("xdp.frags")
int xdp_put_frame_back(struct xdp_md *ctx)
{
	put_frame_back(ctx);
	return XDP_PASS;
}

SEC("xdp.frags")
int xdp_accept(struct xdp_md *ctx)
{
	int verdict = ingress(ctx);

	put_slot_back();
	return verdict;
}

SEC("xdp.frags")
int xdp_put_slot_back(struct xdp_md *ctx)
{
	(void)ctx;
	put_slot_back();
	return XDP_PASS;
}

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

char _license[] SEC("license") = "GPL";
