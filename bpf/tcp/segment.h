/* SPDX-License-Identifier: GPL-2.0-only */
/* A TCP segment, and how it bears the ports of a path (README.md). */
#pragma once

#include "packet/parse.h"

#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_URG 0x20

/* RFC 9293, as far as it is looked at; it lies where UDP and BTH of a probe do. */
struct tcp_header {
	__be16 sport;
	__be16 dport;
	__be32 seq;
	__be32 ack;
	__u8 data_offset;
	__u8 flags;
	__be16 window;
	__be16 check;
	__be16 urgent;
};

static __always_inline struct tcp_header *tcp_header_of(const struct frame *frame)
{
	return (void *)frame->packet;
}

/* What the urgent pointer must be for the segment's checksum to stay right with another pair of ports. */
static __always_inline __be16 urgent_for(__u32 port_sum, __be16 sport, __be16 dport)
{
	return fold(port_sum + (__u16)~sport + (__u16)~dport);
}

/* Of an established connection, and without use for its urgent pointer? */
static __always_inline bool can_bear_ports(const struct tcp_header *tcp)
{
	return (tcp->flags & (TCP_ACK | TCP_SYN | TCP_RST | TCP_URG)) == TCP_ACK && !tcp->urgent;
}

static __always_inline bool bears_ports(const struct tcp_header *tcp)
{
	return (tcp->flags & (TCP_ACK | TCP_SYN | TCP_RST | TCP_URG)) == TCP_ACK && tcp->urgent;
}

static __always_inline void map_ipv4(__be32 mapped[4], __be32 address)
{
	mapped[0] = 0;
	mapped[1] = 0;
	mapped[2] = bpf_htonl(0xffff);
	mapped[3] = address;
}

/* Of the frame's IP header, IPv4 as ::ffff:a.b.c.d. */
static __always_inline void read_addresses(const struct frame *frame, __be32 source[4], __be32 destination[4])
{
	if (!frame->is_ipv6) {
		map_ipv4(source, frame->ip->saddr);
		map_ipv4(destination, frame->ip->daddr);
		return;
	}
	__builtin_memcpy(source, &frame->ip6->saddr, 16);
	__builtin_memcpy(destination, &frame->ip6->daddr, 16);
}
