/* SPDX-License-Identifier: Apache-2.0 */
#include "mutate.h"

#include <string.h>

#define HEADERS     100 /* where most of the changes are made */
#define SMALLEST    54  /* BPF_PROG_TEST_RUN takes no shorter ones for tc */
#define CHANGES_MAX 4

uint64_t dice_roll(struct dice *dice)
{
	uint64_t z = dice->state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

uint32_t dice_below(struct dice *dice, uint32_t bound)
{
	return (dice_roll(dice) >> 32) * bound >> 32;
}

static uint32_t place(struct dice *dice, const struct frame *frame)
{
	uint32_t bound = dice_below(dice, 4) && frame->length > HEADERS ? HEADERS : frame->length;

	return dice_below(dice, bound - 1);
}

static uint32_t odd_number(struct dice *dice)
{
	static const uint16_t edges[] = {0,  1,    3,      4,      7,      8,      20,
					 24, 0x45, 0x3fff, 0x7fff, 0x8000, 0xfffe, 0xffff};

	if (dice_below(dice, 2))
		return edges[dice_below(dice, sizeof(edges) / sizeof(edges[0]))];
	return dice_roll(dice);
}

static void set_length(struct dice *dice, struct frame *frame)
{
	uint32_t bound = dice_below(dice, 8) ? 400 : FRAME_MAX;
	size_t length = SMALLEST + dice_below(dice, bound - SMALLEST);

	for (size_t at = frame->length; at < length; at++)
		frame->bytes[at] = dice_roll(dice);
	frame->length = length;
}

static void change(struct dice *dice, struct frame *frame, const struct frame *other)
{
	uint32_t at = place(dice, frame), end;

	switch (dice_below(dice, 5)) {
	case 0:
		frame->bytes[at] = dice_roll(dice);
		break;
	case 1:
		frame->bytes[at] ^= 1 << dice_below(dice, 8);
		break;
	case 2:
		put16(frame->bytes + at, odd_number(dice));
		break;
	case 3:
		set_length(dice, frame);
		break;
	default:
		end = frame->length < other->length ? frame->length : other->length;
		if (at < end)
			memcpy(frame->bytes + at, other->bytes + at, end - at);
	}
}

static void aim(struct dice *dice, struct frame *frame, const struct layout *layout,
		const struct rules *rules)
{
	const struct steered *steered = &rules->steered[dice_below(dice, rules->total)];
	uint8_t *qpn = frame->bytes + layout->udp + UDP_HEADER + 5;
	uint8_t *ip = frame->bytes + layout->ip;

	qpn[0] = steered->qpn >> 16;
	put16(qpn + 1, steered->qpn);
	if (layout->is_ipv6)
		memcpy(ip + 24, steered->address, 16);
	else
		memcpy(ip + 16, steered->address + 12, 4);
}

static void put_lengths_right(struct frame *frame, const struct layout *layout)
{
	uint32_t length = (frame->length - layout->udp) & ~3U;
	uint8_t *ip = frame->bytes + layout->ip;

	if (layout->is_ipv6)
		put16(ip + 4, length);
	else
		put16(ip + 2, length + (layout->udp - layout->ip));
	put16(frame->bytes + layout->udp + 4, length);
}

/* Make a steered queue pair's packet of it, if there is room. */
static void put_right(struct dice *dice, struct frame *frame, const struct rules *rules)
{
	struct layout layout;
	uint32_t length;

	if (!frame_parse(frame, &layout) || frame->length < layout.udp + UDP_HEADER + BTH_BYTES + ICRC_BYTES)
		return;
	if (dice_below(dice, 8))
		aim(dice, frame, &layout, rules);
	put_lengths_right(frame, &layout);
	length = get16(frame->bytes + layout.udp + 4);
	put32_little(frame->bytes + layout.udp + length - ICRC_BYTES, frame_icrc(frame, &layout));
	put16(frame->bytes + layout.udp + 6, 0);
	if (dice_below(dice, 2))
		put16(frame->bytes + layout.udp + 6, 0xffff - frame_udp_sum(frame, &layout));
}

void mutate(struct dice *dice, const struct corpus *corpus, struct frame *made)
{
	uint32_t changes = dice_below(dice, CHANGES_MAX + 1);

	*made = corpus->frames[dice_below(dice, corpus->total)];
	for (uint32_t i = 0; i < changes; i++)
		change(dice, made, &corpus->frames[dice_below(dice, corpus->total)]);
	if (dice_below(dice, 2))
		put_right(dice, made, &corpus->rules);
	if (!dice_below(dice, 8))
		change(dice, made, &corpus->frames[dice_below(dice, corpus->total)]);
}
