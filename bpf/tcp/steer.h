/* SPDX-License-Identifier: GPL-2.0-only */
/* Egress: a steered connection's segments leave with the ports of their path, or over IPv6 with its flow
 * label, or both.
 *
 * The ports of all connections over a path are the same: its source port, and the port of probes as
 * destination. What tells them apart is the urgent pointer, which has no meaning without its flag: it makes
 * up for the change of the ports in the checksum, so the sum of the three is that of the connection's own
 * ports. No checksum has to follow, be it whole, left to the device, or that of many segments in one buffer.
 */
#pragma once

#include "steering/steer.h"
#include "tcp/segment.h"
#include "tcp/announce.h"
#include "tcp/route.h"

/* Has the far end said of late that it restores the ports? The clock is read once a jiffy. */
static __always_inline bool is_confirmed_now(struct cwdp_tcp_conn *conn)
{
	__u64 confirmed_ns = READ_ONCE(conn->confirmed_ns);
	__u16 tick = bpf_jiffies64();

	if (conn->checked_tick == tick && conn->checked_ns == confirmed_ns)
		return confirmed_ns;
	if (!is_confirmed(conn, bpf_ktime_get_coarse_ns()))
		return false;
	conn->checked_ns = confirmed_ns;
	conn->checked_tick = tick;
	return true;
}

/* May a segment's ports change: will the far end restore them, and has the segment room for what they were?
 */
static __always_inline enum cwdp_reason tcp_may_bear_ports(const struct tcp_header *tcp,
							   struct cwdp_tcp_conn *conn)
{
	if (!can_bear_ports(tcp))
		return CWDP_TCP_CANNOT_BEAR;
	return is_confirmed_now(conn) ? CWDP_TCP_STEERED : CWDP_TCP_NOT_CONFIRMED;
}

static __always_inline void bear_ports(struct tcp_header *tcp, __u32 port_sum, __be16 sport)
{
	__be16 dport = bpf_htons(probe_port);

	tcp->sport = sport;
	tcp->dport = dport;
	tcp->urgent = urgent_for(port_sum, sport, dport);
}

static __always_inline void label_flow(struct ipv6hdr *ip6, __be16 sport)
{
	__be32 *word = (void *)ip6;

	*word = with_flow_label(*word, sport);
}

/* A segment of a steered connection. */
static __always_inline void tcp_steer(struct __sk_buff *skb, struct frame *frame, struct cwdp_tcp_conn *conn,
				      const struct cwdp_control *settings, __u32 port_sum)
{
	struct tcp_header *tcp = tcp_header_of(frame);
	enum cwdp_reason reason = CWDP_TCP_STEERED;
	__u32 route = tcp_route(settings, conn);
	__be16 sport = route == TCP_BACKUP ? conn->backup_sport : conn->sport;

	if (route == TCP_OWN_PORTS)
		reason = CWDP_TCP_NO_PATH;
	else if (conn->flags & CWDP_STEER_PORTS)
		reason = tcp_may_bear_ports(tcp, conn);
	count(reason);
	if (reason != CWDP_TCP_STEERED)
		return;
	if (frame->is_ipv6 && conn->flags & CWDP_STEER_FLOW_LABEL)
		label_flow(frame->ip6, sport);
	if (conn->flags & CWDP_STEER_PORTS)
		bear_ports(tcp, port_sum, sport);
	conn->buffers++;
	conn->bytes += skb->len - bytes_between(frame->eth, frame->ip);
	if (conn->used_sport != sport)
		WRITE_ONCE(conn->used_sport, sport);
	/* a connected socket's hash would have software switches keep to the old path */
	if (skb->hash)
		bpf_set_hash_invalid(skb);
}

static __always_inline struct cwdp_tcp_steered *find_tcp_steered(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&tcp_steered, &zero);
}

/* Egress: any TCP segment. */
static __always_inline void egress_tcp(struct __sk_buff *skb, struct frame *frame)
{
	struct cwdp_tcp_steered *known = find_tcp_steered();
	struct tcp_header *tcp = tcp_header_of(frame);
	__u32 port_sum = fold((__u32)tcp->sport + tcp->dport), *number;
	struct cwdp_control *settings;
	struct cwdp_tcp_conn *conn;
	struct cwdp_tcp_key key;

	if (!known || !known->by_sum[port_sum & (CWDP_TCP_SUMS - 1)])
		return;
	read_addresses(frame, key.local_addr, key.remote_addr);
	key.local_port = tcp->sport;
	key.remote_port = tcp->dport;
	number = bpf_map_lookup_elem(&tcp_out, &key);
	if (!number)
		return;
	conn = find_connection(*number);
	settings = find_control();
	if (conn && settings && conn->flags & CWDP_STEER_ON)
		tcp_steer(skb, frame, conn, settings, port_sum);
}

/* A fragment, or behind options; over IPv6 any protocol may come behind such extension headers. */
static __always_inline bool hides_tcp(const struct frame *frame)
{
	__u8 protocol = frame->protocol;

	return protocol == IPPROTO_TCP ||
	       (frame->is_ipv6 && (protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
				   protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_DSTOPTS));
}

/* Egress: what may be a segment of a steered connection, behind headers that are not followed. */
static __always_inline void left_alone(void)
{
	struct cwdp_tcp_steered *known = find_tcp_steered();

	if (known && known->total)
		count(CWDP_TCP_LEFT_ALONE);
}
