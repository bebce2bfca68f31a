/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <linux/bpf.h>
#include <string.h>

#define TC_ACT_UNSPEC    (-1)
#define TC_ACT_SHOT      2
#define TC_ACT_REDIRECT  7
#define MAC_BYTES        6
#define RC_ACKNOWLEDGE   0x11
#define NAK_PSN_SEQUENCE 0x60
#define DATAGRAM_MIN     (UDP_HEADER + BTH_BYTES + ICRC_BYTES)
#define DATAGRAM_MAX     9216
#define PORT_TO_LABEL    0x3fff
#define STAMP_BYTES      8
#define DETOUR_AT        4 /* of the BTH */
#define DETOUR_BIT       1
#define MACS_BYTES       12
#define TAG_BYTES        4
#define VLAN             0x8100
#define PROVIDER_VLAN    0x88a8
#define PROBES           1 /* version and kinds */
#define REPLY            2

static void address_at(const struct frame *frame, const struct layout *layout, size_t ahead,
		       uint8_t address[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (layout->is_ipv6) {
		memcpy(address, frame->bytes + layout->ip + 8 + 16 * ahead, 16);
		return;
	}
	memcpy(address, mapped, sizeof(mapped));
	memcpy(address + sizeof(mapped), frame->bytes + layout->ip + 12 + 4 * ahead, 4);
}

/* By an address of the frame, the source (0) or the destination (1). */
static const struct steered *find_steered(const struct rules *rules, const struct frame *frame,
					  const struct layout *layout, size_t ahead, uint32_t qpn)
{
	uint8_t address[16];

	address_at(frame, layout, ahead, address);
	for (size_t i = 0; i < rules->total; i++)
		if (rules->steered[i].qpn == qpn &&
		    !memcmp(rules->steered[i].address, address, sizeof(address)))
			return &rules->steered[i];
	return NULL;
}

static bool lengths_agree(const struct frame *frame, const struct layout *layout)
{
	uint32_t length = get16(frame->bytes + layout->udp + 4);

	return length >= DATAGRAM_MIN && length <= DATAGRAM_MAX && length % 4 == 0 &&
	       length == frame_ip_payload(frame, layout) && layout->udp + length <= frame->length;
}

const struct steered *oracle_steers(const struct rules *rules, const struct frame *frame)
{
	const struct steered *found;
	struct layout layout;

	if (!frame_parse(frame, &layout) || frame_is_probe(frame, &layout))
		return NULL;
	found = find_steered(rules, frame, &layout, 1,
			     get32(frame->bytes + layout.udp + UDP_HEADER + 4) & 0xffffff);
	if (!found || get16(frame->bytes + layout.udp) == found->port || !lengths_agree(frame, &layout))
		return NULL;
	return found;
}

/* All but the UDP checksum, which has two forms of zero. */
static void steer_as_expected(struct frame *frame, const struct layout *layout, const struct steered *steered)
{
	uint8_t *label = frame->bytes + layout->ip + 1;
	uint8_t *icrc = frame->bytes + layout->udp + get16(frame->bytes + layout->udp + 4) - ICRC_BYTES;
	uint32_t change = frame_icrc(frame, layout);

	put16(frame->bytes + layout->udp, steered->port);
	if (layout->is_ipv6 && steered->flow_label) {
		label[0] &= 0xf0;
		put16(label + 1, steered->port & PORT_TO_LABEL);
	}
	change ^= frame_icrc(frame, layout);
	put32_little(icrc, get32_little(icrc) ^ change);
}

static bool same(const struct frame *a, const struct frame *b)
{
	return a->length == b->length && !memcmp(a->bytes, b->bytes, a->length);
}

const char *oracle_egress(const struct rules *rules, const struct frame *in, const struct frame *out,
			  int verdict)
{
	const struct steered *steered = oracle_steers(rules, in);
	struct frame expected;
	struct layout layout;
	uint8_t *check;

	if (verdict != TC_ACT_UNSPEC)
		return "egress: another verdict than to go on";
	if (!steered)
		return same(in, out) ? NULL : "egress: changed what is not steered";
	expected = *in;
	frame_parse(&expected, &layout);
	steer_as_expected(&expected, &layout, steered);
	check = expected.bytes + layout.udp + 6;
	if (get16(check)) {
		memcpy(check, out->bytes + layout.udp + 6, 2);
		if (!get16(check))
			return "egress: a UDP checksum became none";
		if (frame_udp_sum(in, &layout) != frame_udp_sum(&expected, &layout))
			return "egress: the UDP checksum does not follow the change";
	}
	return same(&expected, out) ? NULL : "egress: not what steering should have made of it";
}

/* Its syndrome, or a negative number. */
static int acknowledge_syndrome(const struct frame *frame, const struct layout *layout)
{
	const uint8_t *bth = frame->bytes + layout->udp + UDP_HEADER;

	if (layout->udp + UDP_HEADER + BTH_BYTES >= frame->length || bth[0] != RC_ACKNOWLEDGE)
		return -1;
	return bth[BTH_BYTES];
}

static bool is_nak(const struct frame *frame, const struct layout *layout)
{
	return acknowledge_syndrome(frame, layout) == NAK_PSN_SEQUENCE;
}

static bool is_ack(const struct frame *frame, const struct layout *layout)
{
	int syndrome = acknowledge_syndrome(frame, layout);

	return syndrome >= 0 && !(syndrome >> 5 & 3);
}

bool oracle_is_ack(const struct frame *frame)
{
	struct layout layout;

	return frame_parse(frame, &layout) && is_ack(frame, &layout);
}

/* Dropped as it came, or given to this host: under its own link address, and only to who has switched. */
static const char *oracle_nak(const struct rules *rules, const struct frame *in, const struct frame *out,
			      const struct layout *layout, int verdict, uint32_t qpn)
{
	const struct steered *steered = find_steered(rules, in, layout, 0, qpn & 0xffffff);
	struct frame expected = *in;

	if (verdict == TC_ACT_REDIRECT) {
		memcpy(expected.bytes, in->bytes + MAC_BYTES, MAC_BYTES);
		if (!steered || !steered->switched)
			return "egress: a NAK for who has not switched";
	} else if (verdict != TC_ACT_SHOT) {
		return "egress: a NAK of the agent's left the host";
	}
	return same(&expected, out) ? NULL : "egress: changed more of a NAK than its link address";
}

/* Dropped as it came, or sent as a packet of a queue pair that has switched. */
static const char *oracle_ack(const struct rules *rules, const struct frame *in, const struct frame *out,
			      const struct layout *layout, int verdict)
{
	uint32_t qpn = get32(in->bytes + layout->udp + UDP_HEADER + 4) & 0xffffff;
	const struct steered *steered = find_steered(rules, in, layout, 1, qpn);

	if (verdict == TC_ACT_SHOT)
		return same(in, out) ? NULL : "egress: changed an ACK that it dropped";
	if (!steered || !steered->switched)
		return "egress: an ACK of who has not switched";
	return oracle_egress(rules, in, out, verdict);
}

const char *oracle_marked_egress(const struct rules *rules, const struct frame *in, const struct frame *out,
				 int verdict, uint32_t qpn)
{
	struct frame restored = *out;
	struct layout layout;

	if (frame_parse(in, &layout) && is_nak(in, &layout))
		return oracle_nak(rules, in, out, &layout, verdict, qpn);
	if (frame_parse(in, &layout) && is_ack(in, &layout))
		return oracle_ack(rules, in, out, &layout, verdict);
	if (verdict != TC_ACT_UNSPEC)
		return "egress of a probe: another verdict than to go on";
	if (frame_parse(in, &layout) && frame_is_probe(in, &layout)) {
		size_t probe = layout.udp + UDP_HEADER + BTH_BYTES;

		if (probe + PROBE_MAC + STAMP_BYTES <= in->length) {
			memcpy(restored.bytes + probe + PROBE_STAMPED, in->bytes + probe + PROBE_STAMPED,
			       STAMP_BYTES);
			memcpy(restored.bytes + probe + PROBE_MAC, in->bytes + probe + PROBE_MAC,
			       STAMP_BYTES);
		}
	}
	return same(in, &restored) ? NULL : "egress of a probe: changed more than t1 and mac";
}

const char *oracle_ingress(const struct frame *in, const struct frame *out, int verdict)
{
	struct layout layout;
	const uint8_t *probe;

	if (verdict == XDP_PASS)
		return same(in, out) ? NULL : "ingress: passed, but changed";
	if (verdict != XDP_TX && verdict != XDP_DROP)
		return "ingress: neither passed, nor dropped, nor reflected";
	if (!frame_parse(in, &layout) || !frame_is_probe(in, &layout))
		return "ingress: took what is no probe";
	if (verdict == XDP_DROP) {
		probe = in->bytes + layout.udp + UDP_HEADER + BTH_BYTES;
		return probe[PROBE_VERSION] == PROBES && probe[PROBE_KIND] == REPLY
			       ? NULL
			       : "ingress: dropped what is no reply";
	}
	return in->length == out->length ? NULL : "ingress: reflected with another length";
}

bool oracle_restores(const struct frame *in)
{
	struct layout layout;

	return frame_parse(in, &layout) && !frame_is_probe(in, &layout) &&
	       in->bytes[layout.udp + UDP_HEADER + DETOUR_AT] & DETOUR_BIT;
}

static void take_tag_off(struct frame *frame)
{
	uint32_t type = get16(frame->bytes + MACS_BYTES);

	if (type != VLAN && type != PROVIDER_VLAN)
		return;
	frame->length -= TAG_BYTES;
	memmove(frame->bytes + MACS_BYTES, frame->bytes + MACS_BYTES + TAG_BYTES, frame->length - MACS_BYTES);
}

/* Of some 16-bit words, as checksums add them up. */
static uint32_t sum_of(const uint8_t *words, size_t bytes)
{
	uint32_t sum = 0;

	for (size_t at = 0; at < bytes; at += 2)
		sum += get16(words + at);
	return sum;
}

/* What a checksum covers of all that may have changed, and itself. */
static uint32_t changed_sum(const struct frame *frame, const struct layout *layout, size_t check,
			    bool with_qpn)
{
	size_t bytes = layout->is_ipv6 ? 16 : 4;
	uint32_t sum = sum_of(frame->bytes + layout->udp - bytes, bytes) + get16(frame->bytes + check);

	if (with_qpn)
		sum += sum_of(frame->bytes + layout->udp + UDP_HEADER + DETOUR_AT, 4);
	return sum % 0xffff;
}

const char *oracle_ingress_restored(const struct partner *partner, const struct frame *in,
				    const struct frame *out)
{
	struct frame expected = *in, before;
	size_t ip_check, udp_check;
	struct layout layout;

	take_tag_off(&expected);
	before = expected;
	frame_parse(&expected, &layout);
	ip_check = layout.ip + 10;
	udp_check = layout.udp + 6;
	memcpy(expected.bytes, partner->mac, sizeof(partner->mac));
	if (layout.is_ipv6)
		memcpy(expected.bytes + layout.ip + 24, partner->ipv6, sizeof(partner->ipv6));
	else
		memcpy(expected.bytes + layout.ip + 16, partner->ipv4, sizeof(partner->ipv4));
	expected.bytes[layout.udp + UDP_HEADER + DETOUR_AT] &= ~DETOUR_BIT;
	if (!layout.is_ipv6)
		memcpy(expected.bytes + ip_check, out->bytes + ip_check, 2);
	if (get16(expected.bytes + udp_check)) {
		memcpy(expected.bytes + udp_check, out->bytes + udp_check, 2);
		if (!get16(expected.bytes + udp_check))
			return "a UDP checksum became none";
		if (changed_sum(&before, &layout, udp_check, true) !=
		    changed_sum(&expected, &layout, udp_check, true))
			return "the UDP checksum does not follow the change";
	}
	if (!same(&expected, out))
		return "not what it was before its detour";
	if (!layout.is_ipv6 && changed_sum(&before, &layout, ip_check, false) !=
				       changed_sum(&expected, &layout, ip_check, false))
		return "the IP checksum does not follow the change";
	return NULL;
}
