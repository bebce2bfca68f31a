/* SPDX-License-Identifier: Apache-2.0 */
#include "frame.h"

#include <string.h>

#define ETHER_HEADER  14
#define VLAN_TAG      4
#define IPV4_HEADER   20
#define IPV6_HEADER   40
#define UDP_PROTOCOL  17
#define ONES_MODULUS  65535
#define PROBE_OPCODE  0xd7
#define PROBE_QPN     0x00c3d9
#define PROBE_MAGIC   0x43574450
#define CRC_REFLECTED 0xedb88320

static uint32_t crc_table[256];

uint32_t get16(const uint8_t *at)
{
	return (uint32_t)at[0] << 8 | at[1];
}

uint32_t get32(const uint8_t *at)
{
	return get16(at) << 16 | get16(at + 2);
}

void put16(uint8_t *at, uint32_t value)
{
	at[0] = value >> 8;
	at[1] = value;
}

uint32_t get32_little(const uint8_t *at)
{
	return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

void put32_little(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = value >> 8 * i;
}

void crc_init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CRC_REFLECTED : 0);
		crc_table[i] = crc;
	}
}

static uint32_t crc_more(uint32_t crc, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		crc = crc >> 8 ^ crc_table[(crc ^ bytes[i]) & 0xff];
	return crc;
}

static bool is_ipv4_udp(const struct frame *frame, size_t ip)
{
	const uint8_t *header = frame->bytes + ip;

	return ip + IPV4_HEADER <= frame->length && header[0] == 0x45 && header[9] == UDP_PROTOCOL &&
	       !(get16(header + 6) & 0x3fff);
}

static bool is_ipv6_udp(const struct frame *frame, size_t ip)
{
	const uint8_t *header = frame->bytes + ip;

	return ip + IPV6_HEADER <= frame->length && header[0] >> 4 == 6 && header[6] == UDP_PROTOCOL;
}

bool frame_parse(const struct frame *frame, struct layout *layout)
{
	size_t at = ETHER_HEADER;
	uint32_t type;

	if (frame->length < ETHER_HEADER)
		return false;
	type = get16(frame->bytes + 12);
	for (int tags = 0; tags < 2 && (type == 0x8100 || type == 0x88a8); tags++) {
		if (at + VLAN_TAG > frame->length)
			return false;
		type = get16(frame->bytes + at + 2);
		at += VLAN_TAG;
	}
	layout->ip = at;
	layout->is_ipv6 = type == 0x86dd;
	if (type == 0x0800 ? !is_ipv4_udp(frame, at) : type != 0x86dd || !is_ipv6_udp(frame, at))
		return false;
	layout->udp = at + (layout->is_ipv6 ? IPV6_HEADER : IPV4_HEADER);
	return layout->udp + UDP_HEADER + BTH_BYTES <= frame->length &&
	       get16(frame->bytes + layout->udp + 2) == ROCE_PORT;
}

bool frame_is_probe(const struct frame *frame, const struct layout *layout)
{
	const uint8_t *bth = frame->bytes + layout->udp + UDP_HEADER;

	return layout->udp + UDP_HEADER + BTH_BYTES + 4 <= frame->length && bth[0] == PROBE_OPCODE &&
	       get32(bth + 4) == PROBE_QPN && get32(bth + BTH_BYTES) == PROBE_MAGIC;
}

uint32_t frame_ip_payload(const struct frame *frame, const struct layout *layout)
{
	const uint8_t *ip = frame->bytes + layout->ip;

	return layout->is_ipv6 ? get16(ip + 4) : get16(ip + 2) - IPV4_HEADER;
}

/* All bits that may change on the way are taken as ones. */
static void mask_headers(uint8_t *headers, const struct layout *layout)
{
	uint8_t *udp = headers + (layout->udp - layout->ip);

	if (layout->is_ipv6) {
		headers[0] |= 0x0f;
		memset(headers + 1, 0xff, 3);
		headers[7] = 0xff;
	} else {
		headers[1] = 0xff;
		headers[8] = 0xff;
		memset(headers + 10, 0xff, 2);
	}
	memset(udp + 6, 0xff, 2);
	udp[UDP_HEADER + 4] = 0xff;
}

uint32_t frame_icrc(const struct frame *frame, const struct layout *layout)
{
	size_t total = layout->udp - layout->ip + UDP_HEADER + BTH_BYTES;
	size_t end = layout->udp + get16(frame->bytes + layout->udp + 4) - ICRC_BYTES;
	uint8_t headers[IPV6_HEADER + UDP_HEADER + BTH_BYTES];
	static const uint8_t ones[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	uint32_t crc;

	memcpy(headers, frame->bytes + layout->ip, total);
	mask_headers(headers, layout);
	crc = crc_more(0xffffffff, ones, sizeof(ones));
	crc = crc_more(crc, headers, total);
	return ~crc_more(crc, frame->bytes + layout->ip + total, end - layout->ip - total);
}

bool frame_icrc_is_right(const struct frame *frame)
{
	struct layout layout;
	size_t end;

	if (!frame_parse(frame, &layout))
		return false;
	end = layout.udp + get16(frame->bytes + layout.udp + 4);
	return get32_little(frame->bytes + end - ICRC_BYTES) == frame_icrc(frame, &layout);
}

uint32_t frame_udp_sum(const struct frame *frame, const struct layout *layout)
{
	size_t addresses = layout->ip + (layout->is_ipv6 ? 8 : 12);
	uint32_t length = get16(frame->bytes + layout->udp + 4);
	uint64_t sum = UDP_PROTOCOL + length;

	for (size_t at = addresses; at < layout->udp; at += 2)
		sum += get16(frame->bytes + at);
	for (size_t at = layout->udp; at < layout->udp + length; at += 2)
		sum += get16(frame->bytes + at);
	return sum % ONES_MODULUS;
}
