/* SPDX-License-Identifier: Apache-2.0 */
#include "packets/icrc.h"

#include <endian.h>
#include <string.h>

#include "packets/wire.h"

#define POLYNOMIAL 0xedb88320u /* CRC-32 of IEEE 802.3, reflected */
#define SLICES     16
#define LRH_BYTES  8 /* a local route header of all ones stands before the IP header */

static uint32_t table[SLICES][256];

void icrc_init(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
		table[0][byte] = crc;
	}
	for (int slice = 1; slice < SLICES; slice++)
		for (int byte = 0; byte < 256; byte++) {
			uint32_t before = table[slice - 1][byte];

			table[slice][byte] = before >> 8 ^ table[0][before & 0xff];
		}
}

/* The eight bytes of a word, each by the table for its distance from the end of the step. */
static uint32_t fold(uint64_t word, int distance)
{
	uint32_t crc = 0;

#pragma GCC unroll 8
	for (int i = 0; i < 8; i++)
		crc ^= table[distance - 1 - i][word >> 8 * i & 0xff];
	return crc;
}

/* Sixteen bytes a step (slicing, after Kounavis and Berry). */
static uint32_t crc32_update(uint32_t crc, const uint8_t *data, size_t length)
{
	for (; length >= SLICES; data += SLICES, length -= SLICES) {
		uint64_t words[2];

		memcpy(words, data, sizeof(words));
		crc = fold(le64toh(words[0]) ^ crc, SLICES) ^ fold(le64toh(words[1]), SLICES / 2);
	}
	while (length--)
		crc = crc >> 8 ^ table[0][(crc ^ *data++) & 0xff];
	return crc;
}

/* What switches may change counts as ones: ToS or traffic class, flow label, TTL or hop limit, the checksums,
 * and the FECN, BECN and reserved bits of the BTH. */
static size_t copy_masked_headers(uint8_t *out, const uint8_t *packet)
{
	size_t ip_bytes = ip_header_bytes(packet);
	struct bth *bth = (struct bth *)(out + ip_bytes + sizeof(struct udphdr));
	struct udphdr *udp = (struct udphdr *)(out + ip_bytes);
	size_t length = ip_bytes + sizeof(*udp) + sizeof(*bth);

	memcpy(out, packet, length);
	if (is_ipv6(packet)) {
		struct ipv6hdr *ip = (struct ipv6hdr *)out;

		ip->priority = 0xf;
		memset(ip->flow_lbl, 0xff, sizeof(ip->flow_lbl));
		ip->hop_limit = 0xff;
	} else {
		struct iphdr *ip = (struct iphdr *)out;

		ip->tos = 0xff;
		ip->ttl = 0xff;
		ip->check = 0xffff;
	}
	udp->check = 0xffff;
	bth->qpn |= htobe32(0xff000000);
	return length;
}

uint32_t icrc_compute(const uint8_t *packet, size_t length)
{
	uint8_t headers[LRH_BYTES + MAX_IP_BYTES + sizeof(struct udphdr) + sizeof(struct bth)];
	size_t masked = copy_masked_headers(headers + LRH_BYTES, packet);
	uint32_t crc;

	memset(headers, 0xff, LRH_BYTES);
	crc = crc32_update(~0u, headers, LRH_BYTES + masked);
	return ~crc32_update(crc, packet + masked, length - masked);
}

bool icrc_valid(const uint8_t *packet, size_t length)
{
	uint32_t found;

	memcpy(&found, packet + length - ICRC_BYTES, sizeof(found));
	return le32toh(found) == icrc_compute(packet, length - ICRC_BYTES);
}

/* The sum of 16-bit words in network byte order; an odd last byte is filled up with zero. */
static uint64_t add_words(uint64_t sum, const uint8_t *data, size_t length)
{
	for (; length >= 2; data += 2, length -= 2)
		sum += (uint32_t)data[0] << 8 | data[1];
	return length ? sum + ((uint32_t)data[0] << 8) : sum;
}

uint16_t udp_checksum(const uint8_t *packet, size_t length)
{
	size_t ip_bytes = ip_header_bytes(packet);
	const struct udphdr *udp = (const struct udphdr *)(packet + ip_bytes);
	size_t address_bytes = is_ipv6(packet) ? 2 * sizeof(struct in6_addr) : 2 * sizeof(struct in_addr);
	uint64_t sum = IPPROTO_UDP + length - ip_bytes;

	/* Both addresses end the IP header. */
	sum = add_words(sum, packet + ip_bytes - address_bytes, address_bytes);
	sum = add_words(sum, packet + ip_bytes, length - ip_bytes) - be16toh(udp->check);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff ? 0xffff : ~sum; /* zero would say that there is none */
}

bool udp_checksum_valid(const uint8_t *packet, size_t length)
{
	const struct udphdr *udp = (const struct udphdr *)(packet + ip_header_bytes(packet));

	return !udp->check || be16toh(udp->check) == udp_checksum(packet, length);
}
