/* SPDX-License-Identifier: GPL-2.0-only */
/* What a RoCEv2 packet says of its queue pair: BTH and AETH (IBTA 9.2, 9.3.5). */
#pragma once

#include "packet/parse.h"

#define PSN_MASK        0xffffff
#define BTH_OPERATION   0x1f /* of the opcode; the three bits above are the transport */
#define BTH_CNP         0x81 /* IBTA A17.9.3 */
#define ECN_BITS        2
#define ECN_MASK        0x03
#define ECN_CE          0x03
#define IPV6_FLOW_LABEL 0x000fffff

#define ROCE_NO_SYNDROME 0x40 /* of a kind that is reserved */

/* Syndromes of the AETH (IBTA 9.7.5.1.2). */
#define AETH_SYNDROME(aeth)   ((aeth) >> 24)
#define AETH_KIND(s)          ((s) >> 5 & 3)
#define AETH_VALUE(s)         ((s)&0x1f)
#define AETH_ACK              0
#define AETH_RNR_NAK          1
#define AETH_RESERVED         2
#define AETH_NAK_PSN_SEQUENCE 0x60

enum roce_transport {
	ROCE_RC = 0x00,
	ROCE_UC = 0x20,
	ROCE_XRC = 0xa0,
};

/* Operations of the reliable transports that are not plain requests. */
enum roce_operation {
	ROCE_READ_REQUEST = 0x0c,
	ROCE_READ_RESPONSE_FIRST = 0x0d,
	ROCE_READ_RESPONSE_MIDDLE = 0x0e,
	ROCE_READ_RESPONSE_LAST = 0x0f,
	ROCE_READ_RESPONSE_ONLY = 0x10,
	ROCE_ACKNOWLEDGE = 0x11,
	ROCE_ATOMIC_ACKNOWLEDGE = 0x12,
};

/* What the dataplane wants to know of a packet. */
struct roce_packet {
	struct cwdp_qp_key key; /* egress: whom it goes to; ingress: whom it comes from, and to which QPN */
	__u32 psn;
	__u32 aeth;     /* syndrome << 24 | MSN; the syndrome is ROCE_NO_SYNDROME where there is none */
	__u32 ip_bytes; /* of the whole IP packet, as its header has it */
	__u32 ip_header_bytes;
	__u32 udp_offset; /* from the beginning of the frame */
	__be16 sport;
	__u8 opcode;
	__u8 traffic_class; /* of IPv6, or the type of service of IPv4 */
	bool ahead;         /* leaves by the backup before its queue pair does */
	bool again;         /* its queue pair has said it before */
};

/* Do its packets carry a PSN of one sender's stream? Those of datagrams come from many senders. */
static __always_inline bool roce_has_stream(__u8 opcode)
{
	__u8 transport = opcode & ~BTH_OPERATION;

	return transport == ROCE_RC || transport == ROCE_UC || transport == ROCE_XRC;
}

static __always_inline bool roce_is_acknowledge(__u8 opcode)
{
	return opcode == (ROCE_RC | ROCE_ACKNOWLEDGE) || opcode == (ROCE_XRC | ROCE_ACKNOWLEDGE);
}

static __always_inline bool roce_is_response(__u8 operation)
{
	return operation >= ROCE_READ_RESPONSE_FIRST && operation <= ROCE_READ_RESPONSE_ONLY;
}

/* Of a reliable transport, and tells which requests were executed? */
static __always_inline bool roce_is_answer(__u8 opcode)
{
	__u8 transport = opcode & ~BTH_OPERATION, operation = opcode & BTH_OPERATION;

	return (transport == ROCE_RC || transport == ROCE_XRC) && operation >= ROCE_READ_RESPONSE_FIRST &&
	       operation <= ROCE_ATOMIC_ACKNOWLEDGE;
}

static __always_inline void roce_describe_ip(struct roce_packet *packet, const struct iphdr *ip,
					     enum cwdp_direction direction)
{
	__u32 nothing = bytes_between(ip, ip);

	packet->key.addr[0] = nothing;
	packet->key.addr[1] = nothing;
	packet->key.addr[2] = bpf_htonl(0xffff) | nothing;
	packet->key.addr[3] = direction == CWDP_EGRESS ? ip->daddr : ip->saddr;
	packet->ip_bytes = bpf_ntohs(ip->tot_len);
	packet->traffic_class = ip->tos;
}

static __always_inline void roce_describe_ip6(struct roce_packet *packet, const struct ipv6hdr *ip6,
					      enum cwdp_direction direction)
{
	const struct in6_addr *addr = direction == CWDP_EGRESS ? &ip6->daddr : &ip6->saddr;

	packet->key.addr[0] = addr->in6_u.u6_addr32[0];
	packet->key.addr[1] = addr->in6_u.u6_addr32[1];
	packet->key.addr[2] = addr->in6_u.u6_addr32[2];
	packet->key.addr[3] = addr->in6_u.u6_addr32[3];
	packet->ip_bytes = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
	packet->traffic_class = ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
}

static __always_inline void roce_describe(struct roce_packet *packet, const struct frame *frame,
					  enum cwdp_direction direction)
{
	const struct cwdp_bth *bth = &frame->packet->bth;
	const __be32 *aeth = (void *)(bth + 1);

	packet->key.qpn = bpf_ntohl(bth->qpn) & CWDP_QPN_MAX;
	packet->psn = bpf_ntohl(bth->psn) & PSN_MASK;
	packet->sport = frame->packet->sport;
	packet->opcode = bth->opcode;
	packet->aeth = (void *)(aeth + 1) <= frame->end ? bpf_ntohl(*aeth) : ROCE_NO_SYNDROME << 24;
	packet->udp_offset = bytes_between(frame->eth, frame->packet);
	if (!frame->is_ipv6) {
		packet->ip_header_bytes = bytes_between(frame->ip, frame->packet);
		roce_describe_ip(packet, frame->ip, direction);
	} else {
		packet->ip_header_bytes = bytes_between(frame->ip6, frame->packet);
		roce_describe_ip6(packet, frame->ip6, direction);
	}
}
