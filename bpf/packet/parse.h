/* SPDX-License-Identifier: GPL-2.0-only */
/* From an Ethernet frame to a RoCEv2 packet, and to a probe. A parser never changes anything. */
#pragma once

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>

#include "maps.h"

#define VLAN_DEPTH    2
#define IP_FRAGMENTED 0x3fff /* more fragments, or an offset */
#define HEADERS_MASK  0x3f   /* no UDP header lies further in than 62 bytes */

struct vlan_tag {
	__be16 tci;
	__be16 proto;
};

/* Where the headers are. A flag says which of ip and ip6 it is: the verifier would take either for NULL or
 * not. */
struct frame {
	void *end;
	struct ethhdr *eth;
	struct iphdr *ip;
	struct ipv6hdr *ip6;
	bool is_ipv6;
	__u8 protocol; /* behind the IP header, if there is one; 0: not known */
	struct cwdp_probe_packet *packet;
	struct cwdp_probe *probe; /* in the packet; its own pointer, so that 64-bit fields are read as such */
};

/* Read anew, so that nothing is known of the packet: the verifier would follow every length that has been
 * looked at. */
static __always_inline void *skb_data(const struct __sk_buff *skb)
{
	return (void *)(long)READ_ONCE(skb->data);
}

enum parsed {
	PARSED_FOREIGN,
	PARSED_CUT_SHORT, /* so far it may be ours */
	PARSED_ROCE,
	PARSED_TCP, /* to any port */
};

/* A UDP datagram to the port of RoCEv2 or of probes, with some bytes behind its BTH, or a TCP segment; not
 * fragmented, without IP options or extension headers. */
static __always_inline enum parsed parse_headers(struct frame *frame, void *data, void *end, __u32 behind)
{
	struct cwdp_probe_packet *packet;
	struct ethhdr *eth = data;
	void *next = eth + 1;
	__u8 protocol;
	__be16 proto;

	frame->protocol = 0;
	if (next > end)
		return PARSED_CUT_SHORT;
	proto = eth->h_proto;
#pragma unroll
	for (int i = 0; i < VLAN_DEPTH; i++) {
		struct vlan_tag *tag = next;

		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > end)
			return PARSED_CUT_SHORT;
		proto = tag->proto;
		next = tag + 1;
	}
	frame->end = end;
	frame->eth = eth;
	frame->ip = next;
	frame->ip6 = next;
	frame->is_ipv6 = proto == bpf_htons(ETH_P_IPV6);
	if (proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = next;

		if ((void *)(ip + 1) > end)
			return PARSED_CUT_SHORT;
		protocol = ip->protocol;
		frame->protocol = protocol;
		if ((protocol != IPPROTO_UDP && protocol != IPPROTO_TCP) || ip->version != 4 ||
		    ip->ihl != 5 || ip->frag_off & bpf_htons(IP_FRAGMENTED))
			return PARSED_FOREIGN;
		next = ip + 1;
	} else if (proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip6 = next;

		if ((void *)(ip6 + 1) > end)
			return PARSED_CUT_SHORT;
		protocol = ip6->nexthdr;
		frame->protocol = protocol;
		if ((protocol != IPPROTO_UDP && protocol != IPPROTO_TCP) || ip6->version != 6)
			return PARSED_FOREIGN;
		next = ip6 + 1;
	} else {
		return PARSED_FOREIGN;
	}
	packet = next;
	frame->packet = packet;
	frame->probe = (void *)packet + offsetof(struct cwdp_probe_packet, probe);
	if ((void *)(&packet->bth + 1) > end)
		return PARSED_CUT_SHORT;
	if (protocol == IPPROTO_TCP)
		return PARSED_TCP;
	if ((void *)(&packet->bth + 1) + behind > end)
		return PARSED_CUT_SHORT;
	if (packet->dport != bpf_htons(CWDP_ROCE_PORT) && packet->dport != bpf_htons(probe_port))
		return PARSED_FOREIGN;
	return PARSED_ROCE;
}

/* Of headers that lie in one piece: is it ours, whatever is behind its BTH? */
static __always_inline bool parse_roce(struct frame *frame, void *data, void *end)
{
	return parse_headers(frame, data, end, 0) == PARSED_ROCE;
}

/* The one's complement sum of some 16-bit words (RFC 1071), from 1 to 0xffff unless all are zero. */
static __always_inline __u32 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* Where the urgent pointer lies in what would be a BTH. */
static __always_inline __be16 urgent_of(const struct cwdp_probe_packet *packet)
{
	return bpf_htons(bpf_ntohl(packet->bth.psn) & 0xffff);
}

/* To the port of probes, with a BTH of our opcode and queue pair; or with a TCP header of our window, and an
 * urgent pointer by which its ports add up to what those of no steered connection do. So no path that clears
 * the pointer passes for one that is alive. */
static __always_inline bool has_probe_bth(const struct frame *frame)
{
	const struct cwdp_probe_packet *packet = frame->packet;

	if (packet->dport != bpf_htons(probe_port))
		return false;
	if (frame->protocol == IPPROTO_TCP)
		return packet->bth.qpn == bpf_htonl(CWDP_TCP_PROBE) &&
		       fold((__u32)packet->sport + packet->dport + urgent_of(packet)) == CWDP_TCP_PROBE_SUM;
	return packet->bth.opcode == CWDP_BTH_OPCODE && packet->bth.qpn == bpf_htonl(CWDP_BTH_QPN);
}

/* And behind it the magic? */
static __always_inline bool is_probe(const struct frame *frame)
{
	return has_probe_bth(frame) && (void *)(&frame->probe->magic + 1) <= frame->end &&
	       frame->probe->magic == bpf_htonl(CWDP_PROBE_MAGIC);
}

/* From one header to another, as a number of which the verifier knows nothing. It would follow each stack of
 * headers, and each constant that comes of it, through all that is done with the packet. */
static __always_inline __u32 bytes_between(const void *from, const void *to)
{
	__u32 bytes;

	barrier_var(to); /* clang would remember how it was found */
	bytes = to - from;
	barrier_var(bytes); /* and count only where the number is needed */
	return bytes;
}

/* A header that was found so far from the beginning. */
static __always_inline void *header_at(void *data, __u32 offset)
{
	return data + (offset & HEADERS_MASK);
}

/* Is a whole probe there? Its headers are found anew, without knowledge of what lies before them. */
static __always_inline bool find_probe_again(struct frame *frame)
{
	void *data = frame->eth;
	void *ip = header_at(data, bytes_between(data, frame->ip));
	struct cwdp_probe_packet *packet = header_at(data, bytes_between(data, frame->packet));

	frame->ip = ip;
	frame->ip6 = ip;
	frame->packet = packet;
	frame->probe = (void *)packet + offsetof(struct cwdp_probe_packet, probe);
	return ip + sizeof(struct ipv6hdr) <= frame->end && (void *)(packet + 1) <= frame->end;
}

/* Do the frame, the IP header and, over UDP, its header agree on the length of a probe? */
static __always_inline bool probe_length_ok(const struct frame *frame)
{
	const struct cwdp_probe_packet *packet = frame->packet;

	if ((void *)(packet + 1) > frame->end ||
	    (frame->protocol != IPPROTO_TCP && packet->len != bpf_htons(sizeof(*packet))))
		return false;
	if (frame->is_ipv6)
		return frame->ip6->payload_len == bpf_htons(sizeof(*packet));
	return frame->ip->tot_len == bpf_htons(sizeof(*frame->ip) + sizeof(*packet));
}
