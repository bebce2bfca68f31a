/* SPDX-License-Identifier: GPL-2.0-only */
/* The three things that happen to a probe: it is sent, reflected, and comes home.
 *
 * A request is stamped at tc egress and a reply in XDP just before it is sent, so the two directions of one
 * exchange differ by a constant. It cancels because both hosts of a probed pair initiate: the manager
 * averages their two fits (cwdp.shared.clocksync.graph.solve). */
#pragma once

#include "steering/failover.h"
#include "probe/probe_mac.h"
#include "tcp/announce.h"

#define REPLY_TTL 64

static __always_inline __u64 slot_tag(__be32 seq, enum cwdp_slot_state state)
{
	return (__u64)bpf_ntohl(seq) << 32 | state;
}

/* Pulses and announcements have slots of their own, behind those of the pairs. */
static __always_inline struct cwdp_slot *find_slot(const struct cwdp_probe *probe)
{
	__u32 seq = bpf_ntohl(probe->seq), index = seq & (CWDP_SLOTS - 1);

	if (probe->pair_position >= CWDP_POSITION_PULSE)
		index = CWDP_SLOTS + (seq & (CWDP_PULSE_SLOTS - 1));

	return bpf_map_lookup_elem(&slots, &index);
}

/* Egress: sign the agent's template with the time of its leaving, and remember it. */
static __always_inline enum cwdp_reason probe_send(struct frame *frame)
{
	struct cwdp_probe *probe = frame->probe;
	struct cwdp_path *path = NULL;
	struct cwdp_slot *slot;
	struct cwdp_key *key;
	struct siphash s;
	__u64 length, t1;
	__u32 number = 0;
	__be64 mac;

	if (probe->version != CWDP_PROBE_VERSION || probe->kind != CWDP_PROBE_REQUEST)
		return CWDP_PROBE_BAD_TEMPLATE;
	key = find_key(probe->key_id);
	if (!key)
		return CWDP_PROBE_NO_KEY;
	slot = find_slot(probe);
	if (!slot)
		return CWDP_PROBE_BAD_TEMPLATE;
	if (probe->pair_position == CWDP_POSITION_PULSE) {
		number = bpf_ntohl(probe->path);
		path = find_path(number);
		if (!path)
			return CWDP_PULSE_BAD_PATH;
	} else if (probe->pair_position == CWDP_POSITION_CONNECTION) {
		number = bpf_ntohl(probe->path);
		if (frame->protocol != IPPROTO_TCP || !announce(probe, number))
			return CWDP_TCP_BAD_CONNECTION;
		number |= SLOT_OF_CONNECTION;
	}
	length = mac_request_start(&s, key, frame);
	t1 = clock_local_ns();
	mac = mac_request_finish(&s, t1, length);
	probe->t1 = bpf_cpu_to_be64(t1);
	probe->mac = mac;
	slot->t1 = t1;
	slot->request_mac = mac;
	slot->reply_port = probe->reply_port;
	slot->path = number;
	if (path)
		pulse_sent(path, t1);
	__sync_lock_test_and_set(&slot->tag, slot_tag(probe->seq, CWDP_SLOT_SENT));
	return CWDP_PROBE_SENT;
}

static __always_inline void swap_macs(struct ethhdr *eth)
{
	__u16 *x = (void *)eth->h_dest, *y = (void *)eth->h_source;

#pragma unroll
	for (int i = 0; i < ETH_ALEN / 2; i++) {
		__u16 kept = x[i];

		x[i] = y[i];
		y[i] = kept;
	}
}

static __always_inline void swap_addresses(struct ipv6hdr *ip6)
{
	__u64 *source = (void *)&ip6->saddr, *destination = (void *)&ip6->daddr;

#pragma unroll
	for (int i = 0; i < 2; i++) {
		__u64 kept = source[i];

		source[i] = destination[i];
		destination[i] = kept;
	}
}

/* Headers of the way back. The IPv4 checksum is corrected for the new TTL (RFC 1624, equation 3); the swapped
 * addresses leave it as it is. */
static __always_inline void reverse_headers(struct frame *frame)
{
	struct cwdp_probe_packet *packet = frame->packet;

	swap_macs(frame->eth);
	if (!frame->is_ipv6) {
		struct iphdr *ip = frame->ip;
		__be32 source = ip->saddr;
		__u32 sum = (__u16)~ip->check;

		sum += (__u16)~bpf_htons(ip->ttl << 8) + bpf_htons(REPLY_TTL << 8);
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		ip->check = ~sum;
		ip->ttl = REPLY_TTL;
		ip->saddr = ip->daddr;
		ip->daddr = source;
	} else {
		swap_addresses(frame->ip6);
		frame->ip6->hop_limit = REPLY_TTL;
	}
	packet->sport = frame->probe->reply_port;
	packet->check = 0;
	if (frame->protocol == IPPROTO_TCP)
		packet->bth.psn =
			bpf_htonl(bpf_ntohs(urgent_for(CWDP_TCP_PROBE_SUM, packet->sport, packet->dport)));
}

/* Ingress at the responder: verify, stamp, sign, turn round. */
static __always_inline enum cwdp_reason probe_reflect(struct frame *frame, __u64 t2)
{
	struct cwdp_probe *probe = frame->probe;
	struct clock_reading reading;
	struct cwdp_key *key;
	struct siphash s;
	__be64 t2_sent, peer_offset, t3;
	__u64 length, mac;
	__be32 bound_ns;

	key = find_key(probe->key_id);
	if (!key)
		return CWDP_REQUEST_UNKNOWN_KEY;
	mac = probe->mac;
	length = mac_request_start(&s, key, frame);
	if (mac_request_finish(&s, bpf_be64_to_cpu(probe->t1), length) != mac)
		return CWDP_REQUEST_BAD_MAC;
	if (frame->packet->sport != probe->sport || !probe->reply_port)
		return CWDP_REQUEST_BAD_PORT;
	if (is_announcement(frame) && !take_in_announcement(frame))
		return CWDP_TCP_ANNOUNCE_REFUSED;
	reading = clock_read_line(t2);
	bound_ns = bpf_htonl(reading.bound_ns);
	t2_sent = bpf_cpu_to_be64(t2);
	peer_offset = bpf_cpu_to_be64(reading.offset_ns);
	mac_reply_start(&s, key, mac, t2_sent, peer_offset);
	reverse_headers(frame);
	probe->kind = CWDP_PROBE_REPLY;
	probe->bound_ns = bound_ns;
	probe->t2 = t2_sent;
	probe->peer_offset = peer_offset;
	t3 = bpf_cpu_to_be64(clock_local_ns());
	probe->mac = mac_reply_finish(&s, t3, bound_ns);
	probe->t3 = t3;
	return CWDP_REQUEST_REFLECTED;
}

/* Why a reply finds no probe of its own waiting in the slot. */
static __always_inline enum cwdp_reason refuse_reply(__u64 tag, __u64 sent)
{
	if (tag >> 32 != sent >> 32)
		return CWDP_REPLY_UNEXPECTED;
	return (__u32)tag == CWDP_SLOT_FREE ? CWDP_REPLY_LATE : CWDP_REPLY_DUPLICATE;
}

/* Ingress at the initiator: verify against what was sent, and keep the four timestamps, once. */
static __always_inline enum cwdp_reason probe_accept(struct frame *frame, __u64 t4)
{
	struct cwdp_probe *probe = frame->probe;
	struct clock_reading reading;
	struct cwdp_slot *slot;
	struct cwdp_key *key;
	struct siphash s;
	__u64 t1, t2, t3, sent, tag;
	__s64 peer_offset;

	key = find_key(probe->key_id);
	if (!key)
		return CWDP_REPLY_UNKNOWN_KEY;
	slot = find_slot(probe);
	sent = slot_tag(probe->seq, CWDP_SLOT_SENT);
	if (!slot)
		return CWDP_REPLY_UNEXPECTED;
	tag = READ_ONCE(slot->tag);
	if (tag != sent)
		return refuse_reply(tag, sent);
	mac_reply_start(&s, key, slot->request_mac, probe->t2, probe->peer_offset);
	if (mac_reply_finish(&s, probe->t3, probe->bound_ns) != probe->mac)
		return CWDP_REPLY_BAD_MAC;
	if (frame->packet->sport != slot->reply_port)
		return CWDP_REPLY_BAD_PORT;
	t1 = slot->t1;
	t2 = bpf_be64_to_cpu(probe->t2);
	t3 = bpf_be64_to_cpu(probe->t3);
	if ((__s64)(t4 - t1) < 0 || (__s64)(t3 - t2) < 0 || t3 - t2 > t4 - t1)
		return CWDP_REPLY_TIME_REVERSED;
	if (__sync_val_compare_and_swap(&slot->tag, sent, slot_tag(probe->seq, CWDP_SLOT_FILLING)) != sent)
		return CWDP_REPLY_DUPLICATE;
	reading = clock_read_line(t4);
	peer_offset = bpf_be64_to_cpu(probe->peer_offset);
	slot->t2 = t2;
	slot->t3 = t3;
	slot->t4 = t4;
	slot->fwd_owd_ns = (t2 + peer_offset) - (t1 + reading.offset_ns);
	slot->rev_owd_ns = (t4 + reading.offset_ns) - (t3 + peer_offset);
	slot->bound_ns = add_bounds(reading.bound_ns, bpf_ntohl(probe->bound_ns));
	if (slot->path & SLOT_OF_CONNECTION)
		tcp_confirmed(slot->path & ~SLOT_OF_CONNECTION, t1);
	else if (slot->path)
		pulse_answered(slot->path, t1, t4);
	__sync_lock_test_and_set(&slot->tag, slot_tag(probe->seq, CWDP_SLOT_DONE));
	return CWDP_REPLY_ACCEPTED;
}
