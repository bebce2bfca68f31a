/* SPDX-License-Identifier: GPL-2.0-only */
/* For the benchmark: the dataplane over and over the same packet, and what that costs without the dataplane.
 *
 * BPF_PROG_TEST_RUN does not put the packet back between two runs: a reflected request would be a reply. So a
 * program here puts back what the dataplane has changed, or makes the next packet of a flow, and another does
 * nothing else. */
#include "pipeline.h"

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
static __always_inline void put_frame_back(__u64 *data, __u64 *end)
{
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

	put_frame_back((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	return verdict;
}

SEC("xdp.frags")
int xdp_put_frame_back(struct xdp_md *ctx)
{
	put_frame_back((void *)(long)ctx->data, (void *)(long)ctx->data_end);
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

/* BPF_PROG_TEST_RUN makes a socket for each call: have it be the agent's. */
static __always_inline void own_socket(struct __sk_buff *skb)
{
	struct cwdp_control *settings = find_control();

	if (settings)
		settings->senders[CWDP_SENDER_PAIRS_IPV4] = bpf_get_socket_cookie(skb);
}

SEC("tc")
int tc_send(struct __sk_buff *skb)
{
	own_socket(skb);
	return egress(skb);
}

SEC("tc")
int tc_own_socket(struct __sk_buff *skb)
{
	own_socket(skb);
	return TC_ACT_UNSPEC;
}

/* The frame from the map, in a buffer that has the hash of its flow as those of connected sockets have. */
static __always_inline void put_segment_back(struct __sk_buff *skb)
{
	put_frame_back((void *)(long)skb->data, (void *)(long)skb->data_end);
	bpf_set_hash_invalid(skb); /* found anew each time, whatever the dataplane has done */
	bpf_get_hash_recalc(skb);
}

SEC("tc")
int tc_segment(struct __sk_buff *skb)
{
	put_segment_back(skb);
	return egress(skb);
}

SEC("tc")
int tc_put_segment_back(struct __sk_buff *skb)
{
	put_segment_back(skb);
	return TC_ACT_UNSPEC;
}

/* Packets of many queue pairs in turn or at random, each with the next PSN of its own. */
struct bench_flows {
	__u32 number;   /* of the next packet */
	__u32 random;   /* state of a linear congruential generator */
	__u32 qps_bits; /* 2^qps_bits queue pairs */
	__u32 is_random;
	__u32 udp_offset;
	__u32 icrc_offset;
	__u32 icrc;
	__be16 sport;
	__be16 sport_flips; /* bits that change from packet to packet */
};

#define QPN_FIRST    4096
#define OFFSET_MASK  0xfff
#define BENCH_PLACES 131072 /* as many as the table has at its largest */
#define PLACE_BITS   17
#define GOLDEN_RATIO 0x9e3779b1U

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bench_flows);
} bench_flows SEC(".maps");

/* As large as the table of queue pairs: what its memory alone costs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BENCH_PLACES);
	__type(key, __u32);
	__type(value, struct cwdp_qp);
} bench_places SEC(".maps");

static __always_inline __u32 next_qp(struct bench_flows *flows)
{
	__u32 mask = (1U << (flows->qps_bits & 31)) - 1;

	flows->random = flows->random * 1664525 + 1013904223;
	return (flows->is_random ? flows->random >> 8 : flows->number) & mask;
}

/* The next packet; which queue pair's it is. */
static __always_inline __u32 next_packet(void *data, void *end)
{
	struct cwdp_probe_packet *packet;
	struct bench_flows *flows;
	__u32 zero = 0, qp, *icrc;

	flows = bpf_map_lookup_elem(&bench_flows, &zero);
	if (!flows)
		return 0;
	packet = data + (flows->udp_offset & OFFSET_MASK);
	icrc = data + (flows->icrc_offset & OFFSET_MASK);
	if ((void *)(&packet->bth + 1) > end || (void *)(icrc + 1) > end)
		return 0;
	qp = next_qp(flows);
	packet->sport = flows->sport ^ (flows->number & 1 ? flows->sport_flips : 0);
	packet->bth.qpn = bpf_htonl(QPN_FIRST + qp);
	packet->bth.psn = bpf_htonl(flows->number >> (flows->qps_bits & 31) & PSN_MASK);
	*icrc = flows->icrc;
	flows->number++;
	return qp;
}

/* Two cache lines of a place that is the queue pair's own, by additions that other CPUs may make too. */
static __always_inline void touch_place(__u32 qp)
{
	__u32 index = qp * GOLDEN_RATIO >> (32 - PLACE_BITS);
	struct cwdp_qp *place = bpf_map_lookup_elem(&bench_places, &index);

	if (!place)
		return;
	__sync_fetch_and_add(&place->packets, 1);
	__sync_fetch_and_add(&place->bytes, 1);
	__sync_fetch_and_add(&place->acks, 1);
}

SEC("tc")
int tc_flows(struct __sk_buff *skb)
{
	next_packet((void *)(long)skb->data, (void *)(long)skb->data_end);
	return egress(skb);
}

SEC("tc")
int tc_next_packet(struct __sk_buff *skb)
{
	next_packet((void *)(long)skb->data, (void *)(long)skb->data_end);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int tc_touch_places(struct __sk_buff *skb)
{
	touch_place(next_packet((void *)(long)skb->data, (void *)(long)skb->data_end));
	return TC_ACT_UNSPEC;
}

SEC("xdp.frags")
int xdp_flows(struct xdp_md *ctx)
{
	next_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	return ingress(ctx);
}

SEC("xdp.frags")
int xdp_next_packet(struct xdp_md *ctx)
{
	next_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end);
	return XDP_PASS;
}

SEC("xdp.frags")
int xdp_touch_places(struct xdp_md *ctx)
{
	touch_place(next_packet((void *)(long)ctx->data, (void *)(long)ctx->data_end));
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
