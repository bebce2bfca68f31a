/* SPDX-License-Identifier: GPL-2.0-only */
/* Ingress: segments are given their connection's ports back before the stack sees them, and so are those
 * that ICMP errors quote. */
#pragma once

#include "tcp/route.h"
#include "tcp/segment.h"

#define ICMP_HEADER      8
#define ICMP4_UNREACH    3
#define ICMP4_QUENCH     4
#define ICMP4_EXCEEDED   11
#define ICMP4_PARAMETER  12
#define ICMP6_ERRORS_END 5 /* of the errors that quote a packet: 1 to 4 */

/* Give a header the ports that belong to its addresses and sum; NULL where nobody has announced them. */
static __always_inline const struct cwdp_tcp_ports *give_back_ports(struct tcp_header *tcp,
								    struct cwdp_tcp_wire_key *wire)
{
	struct cwdp_tcp_ports *ports;

	wire->port_sum = fold((__u32)tcp->sport + tcp->dport + tcp->urgent);
	ports = bpf_map_lookup_elem(&tcp_in, wire);
	if (!ports)
		return NULL;
	tcp->sport = ports->from_port;
	tcp->dport = ports->to_port;
	tcp->urgent = 0;
	return ports;
}

/* Of a segment without IP options or extension headers. */
static __always_inline bool has_payload(const struct frame *frame, const struct tcp_header *tcp)
{
	__u32 bytes = frame->is_ipv6 ? bpf_ntohs(frame->ip6->payload_len)
				     : bpf_ntohs(frame->ip->tot_len) - sizeof(*frame->ip);

	return bytes > (tcp->data_offset >> 4) * 4;
}

/* A segment to the port of probes. What bears ports that its host has not announced is of no use to the
 * stack, which would answer with a reset. */
static __always_inline int ingress_tcp(struct frame *frame)
{
	struct tcp_header *tcp = tcp_header_of(frame);
	struct cwdp_tcp_wire_key wire = {};
	const struct cwdp_tcp_ports *ports;

	if (tcp->dport != bpf_htons(probe_port) || !bears_ports(tcp))
		return XDP_PASS;
	read_addresses(frame, wire.from_addr, wire.to_addr);
	ports = give_back_ports(tcp, &wire);
	if (ports) {
		count(CWDP_TCP_RESTORED);
		tcp_acked(ports->number, tcp, has_payload(frame, tcp));
		return XDP_PASS;
	}
	wire.port_sum = 0;
	if (!bpf_map_lookup_elem(&tcp_in, &wire))
		return XDP_PASS;
	count(CWDP_TCP_UNKNOWN);
	return XDP_DROP;
}

static __always_inline bool is_icmp(const struct frame *frame)
{
	return frame->protocol == (frame->is_ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
}

static __always_inline bool is_icmp_error(__u8 type, bool is_ipv6)
{
	if (is_ipv6)
		return type && type < ICMP6_ERRORS_END;
	return type == ICMP4_UNREACH || type == ICMP4_QUENCH || type == ICMP4_EXCEEDED ||
	       type == ICMP4_PARAMETER;
}

/* The TCP header that an ICMP error quotes, with the addresses of its packet; NULL where it quotes another,
 * or less than the whole header. */
static __always_inline struct tcp_header *quoted(const struct frame *frame, struct cwdp_tcp_wire_key *wire)
{
	void *quote = frame->is_ipv6 ? (void *)(frame->ip6 + 1) : (void *)(frame->ip + 1);
	struct frame inner = {.is_ipv6 = frame->is_ipv6};
	struct tcp_header *tcp;

	quote += ICMP_HEADER;
	inner.ip = quote;
	inner.ip6 = quote;
	if (!frame->is_ipv6) {
		tcp = quote + sizeof(*inner.ip);
		if ((void *)(tcp + 1) > frame->end || inner.ip->protocol != IPPROTO_TCP || inner.ip->ihl != 5)
			return NULL;
	} else {
		tcp = quote + sizeof(*inner.ip6);
		if ((void *)(tcp + 1) > frame->end || inner.ip6->nexthdr != IPPROTO_TCP)
			return NULL;
	}
	read_addresses(&inner, wire->from_addr, wire->to_addr);
	return tcp;
}

/* An ICMP error: what it quotes as it left this host's stack. The sum of the quoted ports stays what it was,
 * and so does the error's checksum. */
static __always_inline void ingress_icmp(const struct frame *frame)
{
	struct cwdp_tcp_wire_key wire = {};
	struct tcp_header *tcp;
	__u8 *type = frame->is_ipv6 ? (void *)(frame->ip6 + 1) : (void *)(frame->ip + 1);

	if ((void *)(type + 1) > frame->end || !is_icmp_error(*type, frame->is_ipv6) ||
	    (!frame->is_ipv6 && frame->ip->ihl != 5))
		return;
	tcp = quoted(frame, &wire);
	if (!tcp || tcp->dport != bpf_htons(probe_port) || !bears_ports(tcp) ||
	    fold((__u32)tcp->sport + tcp->dport + tcp->urgent) == CWDP_TCP_PROBE_SUM)
		return;
	count(give_back_ports(tcp, &wire) ? CWDP_TCP_QUOTE_RESTORED : CWDP_TCP_QUOTE_UNKNOWN);
}
