/* SPDX-License-Identifier: Apache-2.0 */
/* RoCEv2 packets of the reliable connected (RC) transport, from the IP header on: built and taken apart. */
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/types.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROCE_PORT         4791
#define MAX_MTU           4096
#define MAX_IP_BYTES      sizeof(struct ipv6hdr)
#define MAX_PACKET_BYTES  (MAX_MTU + 128)
#define PSN_MASK          0xffffffu
#define ECN_MASK          3
#define ECN_CE            3
#define FIRST_VENDOR_CODE 0xc0 /* opcodes from here on are left to manufacturers (IBTA 9.2.1) */
#define CNP_PADDING_BYTES 16

/* IBTA 9.2.1 and, for the CNP, Annex A17. */
enum opcode {
	RC_WRITE_FIRST = 0x06,
	RC_WRITE_MIDDLE = 0x07,
	RC_WRITE_LAST = 0x08,
	RC_WRITE_ONLY = 0x0a,
	RC_ACKNOWLEDGE = 0x11,
	CNP = 0x81,
};

/* Syndromes of the AETH (IBTA 9.7.5). Credits are not used, which 31 says. */
enum syndrome {
	SYNDROME_ACK = 0x1f,
	SYNDROME_NAK_SEQUENCE = 0x60,
};

struct bth {
	uint8_t opcode;
	uint8_t flags; /* solicited event, migration request, pad count (2 bits), version (4 bits) */
	__be16 pkey;
	__be32 qpn; /* FECN, BECN and 6 reserved bits, then the destination QPN */
	__be32 psn; /* acknowledgement request and 7 reserved bits, then the PSN */
} __attribute__((packed));

struct reth {
	__be64 address;
	__be32 rkey;
	__be32 length;
} __attribute__((packed));

struct aeth {
	__be32 syndrome_msn;
} __attribute__((packed));

/* What is the same in the headers of all packets that a queue pair sends. */
struct path {
	int family;
	uint8_t local[16]; /* IPv4 addresses use the first 4 bytes */
	uint8_t remote[16];
	uint32_t remote_qpn;
	uint32_t flow_label; /* IPv6 only */
	uint32_t tos;        /* DSCP and ECN */
	uint32_t sport;
	uint32_t with_checksum; /* send a UDP checksum, else zero */
};

/* What differs from packet to packet. */
struct transport {
	enum opcode opcode;
	uint32_t psn;
	bool ack_request;
	uint32_t message_bytes; /* First and Only: for the RETH */
	uint32_t syndrome;      /* Acknowledge */
	uint32_t msn;           /* Acknowledge */
	const uint8_t *payload;
	size_t payload_bytes;
};

/* A packet taken apart; points into the bytes that it came from. */
struct packet {
	const uint8_t *data; /* from the IP header to the ICRC's end */
	size_t length;
	const uint8_t *source; /* as long as the family's addresses are */
	const uint8_t *destination;
	int family;
	uint8_t tos;
	uint8_t opcode;
	uint16_t sport;
	uint32_t qpn;
	uint32_t psn;
	bool ack_request;
	uint32_t syndrome;
	const uint8_t *payload;
	size_t payload_bytes;
};

enum verdict {
	PACKET_OK,
	PACKET_NOT_OURS, /* not RoCEv2, or of a manufacturer's opcode, such as a probe of cwdp's */
	PACKET_MALFORMED,
};

static inline bool is_ipv6(const uint8_t *packet)
{
	return packet[0] >> 4 == 6;
}

static inline size_t ip_header_bytes(const uint8_t *packet)
{
	return is_ipv6(packet) ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

static inline size_t address_bytes(int family)
{
	return family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);
}

static inline bool has_reth(uint8_t opcode)
{
	return opcode == RC_WRITE_FIRST || opcode == RC_WRITE_ONLY;
}

static inline bool is_write(uint8_t opcode)
{
	return opcode == RC_WRITE_FIRST || opcode == RC_WRITE_MIDDLE || opcode == RC_WRITE_LAST ||
	       opcode == RC_WRITE_ONLY;
}

static inline bool ends_message(uint8_t opcode)
{
	return opcode == RC_WRITE_LAST || opcode == RC_WRITE_ONLY;
}

/* Bytes of a packet, IP header included. */
size_t wire_bytes(int family, enum opcode opcode, size_t payload_bytes);

/* Writes a packet with a valid ICRC to `out`, which holds MAX_PACKET_BYTES; returns its length. The IPv4
 * header checksum is left to the kernel. */
size_t wire_build(const struct path *path, const struct transport *transport, uint8_t *out);

/* Takes the `length` bytes of an IP packet apart. The ICRC is not looked at. */
enum verdict wire_parse(const uint8_t *data, size_t length, struct packet *packet);
