/* SPDX-License-Identifier: Apache-2.0 */
#include "connection/requester.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"

#define NS_PER_S        1000000000ull
#define ETHERNET_BYTES  14
#define MAX_CATCH_UP_NS 10000000ull /* a late wake-up is made good, up to this */
#define CACHE_LINE      64

/* Where in which message a packet is. */
struct place {
	uint64_t message;
	uint64_t message_bytes;
	uint64_t index;
	uint64_t packets; /* of the message */
};

static uint64_t packets_of(const struct requester *requester, uint64_t message_bytes)
{
	return (message_bytes + requester->mtu - 1) / requester->mtu;
}

/* All messages are alike but for the last one of a total, which may be shorter. */
static struct place place_of(const struct requester *requester, uint64_t sequence)
{
	uint64_t packets = packets_of(requester, requester->message_bytes);
	struct place place = {.message = sequence / packets,
			      .index = sequence % packets,
			      .message_bytes = requester->message_bytes};

	if (requester->total_bytes) {
		uint64_t left = requester->total_bytes - place.message * requester->message_bytes;

		if (left < place.message_bytes)
			place.message_bytes = left;
	}
	place.packets = packets_of(requester, place.message_bytes);
	return place;
}

static enum opcode opcode_of(const struct place *place)
{
	if (place->packets == 1)
		return RC_WRITE_ONLY;
	if (place->index == 0)
		return RC_WRITE_FIRST;
	return place->index + 1 == place->packets ? RC_WRITE_LAST : RC_WRITE_MIDDLE;
}

void requester_init(struct requester *requester)
{
	requester->limit = UINT64_MAX;
	if (requester->total_bytes) {
		uint64_t whole = requester->total_bytes / requester->message_bytes;
		uint64_t rest = requester->total_bytes % requester->message_bytes;

		requester->limit =
			whole * packets_of(requester, requester->message_bytes) + packets_of(requester, rest);
	}
	/* Half a window, so that it never closes without an acknowledgement on its way. */
	if (requester->ack_every > (requester->window + 1) / 2)
		requester->ack_every = (requester->window + 1) / 2;
	requester->sent_ns = need(calloc(requester->window, sizeof(*requester->sent_ns)));
	requester->started_ns = need(calloc(requester->window, sizeof(*requester->started_ns)));
}

void requester_gate(struct requester *requester)
{
	requester->gated = true;
	requester->limit = 0;
}

void requester_post(struct requester *requester)
{
	requester->limit += packets_of(requester, requester->message_bytes);
}

void requester_finish(struct requester *requester)
{
	uint64_t packets = packets_of(requester, requester->message_bytes);
	uint64_t begun = (requester->highest + packets - 1) / packets * packets;

	if (begun < requester->limit && !requester->gated)
		requester->limit = begun;
}

bool requester_done(const struct requester *requester)
{
	return requester->failed || requester->acked >= requester->limit;
}

uint64_t requester_send_ns(const struct requester *requester)
{
	bool open = requester->next < requester->limit &&
		    requester->next < requester->acked + requester->window && !requester->failed;

	return open ? requester->pace_ns : UINT64_MAX;
}

uint64_t requester_timer_ns(const struct requester *requester)
{
	bool waiting = requester->next > requester->acked && !requester->failed;

	return waiting ? requester->progress_ns + requester->timeout_ns : UINT64_MAX;
}

/* What messages are made of: bytes that differ, so that a byte out of place does not go unseen. */
static const uint8_t *pattern(void)
{
	static uint8_t bytes[MAX_MTU];

	if (!bytes[1])
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = i * 167 + (i >> 8);
	return bytes;
}

static bool wants_ack(const struct requester *requester, const struct place *place)
{
	return place->index + 1 == place->packets || (requester->next + 1) % requester->ack_every == 0;
}

size_t requester_build(const struct requester *requester, uint64_t now_ns, uint8_t *out)
{
	struct place place = place_of(requester, requester->next);
	uint64_t offset = place.index * requester->mtu, left = place.message_bytes - offset;
	uint64_t previous_ns =
		requester->next ? requester->sent_ns[(requester->next - 1) % requester->window] : 0;
	struct stamp stamp = {.sent_ns = htobe64(now_ns),
			      .previous_sent_ns = htobe64(previous_ns),
			      .round = htobe64(requester->go_back_total + 1)};
	uint8_t payload[MAX_MTU] __attribute__((aligned(CACHE_LINE)));
	struct transport transport = {.opcode = opcode_of(&place),
				      .psn = qp_psn(&requester->qp, requester->next),
				      .ack_request = wants_ack(requester, &place),
				      .message_bytes = place.message_bytes,
				      .payload = payload,
				      .payload_bytes = left < requester->mtu ? left : requester->mtu};

	memcpy(payload, pattern(), transport.payload_bytes);
	if (transport.payload_bytes >= sizeof(stamp))
		memcpy(payload, &stamp, sizeof(stamp));
	return wire_build(&requester->qp.path, &transport, out);
}

static void pace(struct requester *requester, uint64_t now_ns, size_t length)
{
	uint64_t earliest = now_ns > MAX_CATCH_UP_NS ? now_ns - MAX_CATCH_UP_NS : 0;

	if (!requester->rate_bps)
		return;
	if (requester->pace_ns < earliest)
		requester->pace_ns = requester->sent_packets ? earliest : now_ns;
	requester->pace_ns += (length + ETHERNET_BYTES) * 8 * NS_PER_S / requester->rate_bps;
}

void requester_sent(struct requester *requester, uint64_t now_ns, size_t length)
{
	if (requester->next == requester->acked)
		requester->progress_ns = now_ns;
	pace(requester, now_ns, length);
	requester->sent_packets++;
	requester->sent_ns[requester->next % requester->window] = now_ns;
	if (requester->next < requester->highest) {
		requester->retransmitted_packets++;
	} else {
		struct place place = place_of(requester, requester->next);

		if (place.index == 0)
			requester->started_ns[place.message % requester->window] = now_ns;
		if (!requester->first_ns)
			requester->first_ns = now_ns;
		requester->highest++;
	}
	requester->next++;
}

static void record_go_back(struct requester *requester, uint64_t now_ns, bool timeout)
{
	struct go_back *event;

	if (!requester->go_backs)
		requester->go_backs = need(calloc(LOG_LIMIT, sizeof(*requester->go_backs)));
	if (requester->go_back_total++ >= LOG_LIMIT)
		return;
	event = &requester->go_backs[requester->go_back_total - 1];
	*event = (struct go_back){.at_ns = now_ns,
				  .first_sent_ns = requester->sent_ns[requester->acked % requester->window],
				  .last_sent_ns =
					  requester->sent_ns[(requester->next - 1) % requester->window],
				  .psn = qp_psn(&requester->qp, requester->acked),
				  .packets = requester->next - requester->acked,
				  .timeout = timeout};
}

/* Sends everything without acknowledgement again, unless that has been tried too often. */
static void go_back(struct requester *requester, uint64_t now_ns, bool timeout)
{
	if (requester->next == requester->acked)
		return;
	record_go_back(requester, now_ns, timeout);
	if (requester->tries++ == requester->retries) {
		requester->failed = true;
		return;
	}
	requester->next = requester->acked;
	requester->progress_ns = now_ns;
}

void requester_on_timer(struct requester *requester, uint64_t now_ns)
{
	requester->timeouts++;
	go_back(requester, now_ns, true);
}

static void complete_messages(struct requester *requester, uint64_t now_ns)
{
	uint64_t packets = packets_of(requester, requester->message_bytes);

	for (;;) {
		uint64_t end = (requester->messages + 1) * packets;
		uint64_t started_ns = requester->started_ns[requester->messages % requester->window];

		if (end > requester->limit)
			end = requester->limit;
		if (end > requester->acked || end <= requester->messages * packets)
			return;
		histogram_add(&requester->completion, now_ns - started_ns);
		requester->messages++;
	}
}

static void advance(struct requester *requester, uint64_t sequence, uint64_t now_ns)
{
	if (sequence <= requester->acked)
		return;
	requester->acked = sequence;
	if (requester->next < sequence)
		requester->next = sequence;
	requester->tries = 0;
	requester->progress_ns = now_ns;
	requester->last_ns = now_ns;
	complete_messages(requester, now_ns);
}

void requester_on_acknowledge(struct requester *requester, const struct packet *packet, uint64_t now_ns)
{
	uint32_t ahead = (packet->psn - qp_psn(&requester->qp, requester->acked)) & PSN_MASK;
	uint64_t sequence = requester->acked + ahead;
	bool known = ahead < PSN_HALF && sequence < requester->highest && !requester->failed;

	if (packet->syndrome == SYNDROME_NAK_SEQUENCE) {
		requester->naks++;
		if (known) {
			advance(requester, sequence, now_ns);
			go_back(requester, now_ns, false);
		}
	} else {
		requester->acks++;
		if (known)
			advance(requester, sequence + 1, now_ns);
	}
}

uint64_t requester_acked_bytes(const struct requester *requester)
{
	struct place place = place_of(requester, requester->acked);

	if (requester->total_bytes && requester->acked == requester->limit)
		return requester->total_bytes;
	return place.message * requester->message_bytes + place.index * requester->mtu;
}
