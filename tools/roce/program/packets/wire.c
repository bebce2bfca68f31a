/* SPDX-License-Identifier: Apache-2.0 */
#include "packets/wire.h"

#include <endian.h>
#include <string.h>

#include "packets/icrc.h"

#define PKEY_DEFAULT   0xffff
#define HOP_LIMIT      64
#define DONT_FRAGMENT  0x4000
#define FRAGMENT_MASK  0x3fff /* more fragments, or an offset */
#define BTH_BECN       0x40000000u
#define BTH_ACK        0x80000000u
#define REMOTE_KEY     0x1
#define PAD_SHIFT      4
#define PAD_MASK       3
#define SYNDROME_SHIFT 24

static size_t extension_bytes(uint8_t opcode)
{
	if (has_reth(opcode))
		return sizeof(struct reth);
	if (opcode == RC_ACKNOWLEDGE)
		return sizeof(struct aeth);
	return opcode == CNP ? CNP_PADDING_BYTES : 0;
}

static size_t pad_bytes(size_t payload_bytes)
{
	return -payload_bytes & PAD_MASK;
}

size_t wire_bytes(int family, enum opcode opcode, size_t payload_bytes)
{
	size_t ip_bytes = family == AF_INET6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	return ip_bytes + sizeof(struct udphdr) + sizeof(struct bth) + extension_bytes(opcode) +
	       payload_bytes + pad_bytes(payload_bytes) + ICRC_BYTES;
}

/* Neither the identification nor the flags may be the kernel's choice: the ICRC covers them. With "don't
 * fragment" the kernel leaves an identification of zero as it is. */
static uint8_t *write_ip(const struct path *path, size_t length, uint8_t *out)
{
	if (path->family == AF_INET6) {
		struct ipv6hdr *ip = (struct ipv6hdr *)out;
		__be32 first = htobe32(6u << 28 | path->tos << 20 | path->flow_label);

		memcpy(ip, &first, sizeof(first));
		ip->payload_len = htobe16(length - sizeof(*ip));
		ip->nexthdr = IPPROTO_UDP;
		ip->hop_limit = HOP_LIMIT;
		memcpy(&ip->saddr, path->local, sizeof(ip->saddr));
		memcpy(&ip->daddr, path->remote, sizeof(ip->daddr));
		return out + sizeof(*ip);
	}
	struct iphdr *ip = (struct iphdr *)out;

	*ip = (struct iphdr){.version = 4,
			     .ihl = 5,
			     .tos = path->tos,
			     .tot_len = htobe16(length),
			     .frag_off = htobe16(DONT_FRAGMENT),
			     .ttl = HOP_LIMIT,
			     .protocol = IPPROTO_UDP};
	memcpy(&ip->saddr, path->local, sizeof(ip->saddr));
	memcpy(&ip->daddr, path->remote, sizeof(ip->daddr));
	return out + sizeof(*ip);
}

static uint8_t *write_bth(const struct path *path, const struct transport *transport, uint8_t *out)
{
	uint32_t qpn = path->remote_qpn | (transport->opcode == CNP ? BTH_BECN : 0);
	uint32_t psn = (transport->psn & PSN_MASK) | (transport->ack_request ? BTH_ACK : 0);
	struct bth bth = {.opcode = transport->opcode,
			  .flags = pad_bytes(transport->payload_bytes) << PAD_SHIFT,
			  .pkey = htobe16(PKEY_DEFAULT),
			  .qpn = htobe32(qpn),
			  .psn = htobe32(psn)};

	memcpy(out, &bth, sizeof(bth));
	return out + sizeof(bth);
}

static uint8_t *write_extension(const struct transport *transport, uint8_t *out)
{
	size_t length = extension_bytes(transport->opcode);

	if (has_reth(transport->opcode)) {
		struct reth reth = {.rkey = htobe32(REMOTE_KEY), .length = htobe32(transport->message_bytes)};

		memcpy(out, &reth, sizeof(reth));
	} else if (transport->opcode == RC_ACKNOWLEDGE) {
		uint32_t msn = transport->msn & PSN_MASK;
		struct aeth aeth = {.syndrome_msn = htobe32(transport->syndrome << SYNDROME_SHIFT | msn)};

		memcpy(out, &aeth, sizeof(aeth));
	} else {
		memset(out, 0, length);
	}
	return out + length;
}

size_t wire_build(const struct path *path, const struct transport *transport, uint8_t *out)
{
	size_t length = wire_bytes(path->family, transport->opcode, transport->payload_bytes);
	uint8_t *udp_start = write_ip(path, length, out), *next = udp_start + sizeof(struct udphdr);
	struct udphdr udp = {.source = htobe16(path->sport),
			     .dest = htobe16(ROCE_PORT),
			     .len = htobe16(length - (udp_start - out))};
	size_t pad = pad_bytes(transport->payload_bytes);
	uint32_t icrc;

	memcpy(udp_start, &udp, sizeof(udp));
	next = write_bth(path, transport, next);
	next = write_extension(transport, next);
	if (transport->payload_bytes)
		memcpy(next, transport->payload, transport->payload_bytes);
	next += transport->payload_bytes;
	memset(next, 0, pad);
	next += pad;
	icrc = htole32(icrc_compute(out, length - ICRC_BYTES));
	memcpy(next, &icrc, sizeof(icrc));
	if (path->with_checksum) {
		udp.check = htobe16(udp_checksum(out, length));
		memcpy(udp_start, &udp, sizeof(udp));
	}
	return length;
}

/* Returns the length that the IP header states, 0 for what is not an unfragmented UDP packet without options.
 */
static size_t parse_ip(const uint8_t *data, size_t length, struct packet *packet)
{
	if (length >= sizeof(struct iphdr) && data[0] == 0x45) {
		const struct iphdr *ip = (const struct iphdr *)data;

		packet->family = AF_INET;
		packet->tos = ip->tos;
		packet->source = (const uint8_t *)&ip->saddr;
		packet->destination = (const uint8_t *)&ip->daddr;
		if (ip->protocol != IPPROTO_UDP || be16toh(ip->frag_off) & FRAGMENT_MASK)
			return 0;
		return be16toh(ip->tot_len);
	}
	if (length >= sizeof(struct ipv6hdr) && is_ipv6(data)) {
		const struct ipv6hdr *ip = (const struct ipv6hdr *)data;

		packet->family = AF_INET6;
		packet->tos = (data[0] << 4 | data[1] >> 4) & 0xff;
		packet->source = (const uint8_t *)&ip->saddr;
		packet->destination = (const uint8_t *)&ip->daddr;
		return ip->nexthdr == IPPROTO_UDP ? sizeof(*ip) + be16toh(ip->payload_len) : 0;
	}
	return 0;
}

enum verdict wire_parse(const uint8_t *data, size_t length, struct packet *packet)
{
	size_t stated = parse_ip(data, length, packet), headers, pad;
	struct udphdr udp;
	struct bth bth;

	if (!stated)
		return PACKET_NOT_OURS;
	headers = ip_header_bytes(data) + sizeof(udp) + sizeof(bth);
	if (stated > length || stated < headers + ICRC_BYTES)
		return PACKET_MALFORMED;
	memcpy(&udp, data + headers - sizeof(bth) - sizeof(udp), sizeof(udp));
	memcpy(&bth, data + headers - sizeof(bth), sizeof(bth));
	if (udp.dest != htobe16(ROCE_PORT) || bth.opcode >= FIRST_VENDOR_CODE)
		return PACKET_NOT_OURS;
	headers += extension_bytes(bth.opcode);
	pad = bth.flags >> PAD_SHIFT & PAD_MASK;
	if (be16toh(udp.len) != stated - ip_header_bytes(data) || stated < headers + pad + ICRC_BYTES)
		return PACKET_MALFORMED;
	packet->data = data;
	packet->length = stated;
	packet->opcode = bth.opcode;
	packet->sport = be16toh(udp.source);
	packet->qpn = be32toh(bth.qpn) & PSN_MASK;
	packet->psn = be32toh(bth.psn) & PSN_MASK;
	packet->ack_request = be32toh(bth.psn) & BTH_ACK;
	packet->payload = data + headers;
	packet->payload_bytes = stated - headers - pad - ICRC_BYTES;
	if (bth.opcode == RC_ACKNOWLEDGE)
		packet->syndrome = data[headers - sizeof(struct aeth)];
	return PACKET_OK;
}
