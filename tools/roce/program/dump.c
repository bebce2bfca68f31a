/* SPDX-License-Identifier: Apache-2.0 */
#include "dump.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"
#include "connection/requester.h"
#include "connection/responder.h"

#define STEP_NS       1000
#define TIMEOUT_NS    100000
#define START_NS      1000000
#define FATE_EVERY    11
#define REQUESTER_QPN 0x000011
#define RESPONDER_QPN 0xfffffe

/* What becomes of every FATE_EVERYth packet of the requester. */
enum fate {
	KEPT,
	LOST,
	LATE,
};

static const char *const fate_names[] = {"kept", "lost", "late"};

/* The connection, and what is on its way to the requester; the way to the responder takes no time. */
struct transfer {
	struct requester requester;
	struct responder responder;
	uint64_t now_ns;
	unsigned sent;
	enum fate fate;
	size_t late_length;
	uint8_t late[MAX_PACKET_BYTES];
};

static void print(const char *sender, enum fate fate, const uint8_t *packet, size_t length)
{
	printf("%s %s ", sender, fate_names[fate]);
	for (size_t i = 0; i < length; i++)
		printf("%02x", packet[i]);
	putchar('\n');
}

static void answer(struct transfer *transfer)
{
	uint8_t bytes[MAX_PACKET_BYTES];
	struct transport transport;
	struct packet packet;

	while (responder_answer(&transfer->responder, &transport)) {
		size_t length = wire_build(&transfer->responder.qp.path, &transport, bytes);

		responder_answered(&transfer->responder, &transport);
		print("responder", KEPT, bytes, length);
		if (wire_parse(bytes, length, &packet) == PACKET_OK && packet.opcode == RC_ACKNOWLEDGE)
			requester_on_acknowledge(&transfer->requester, &packet, transfer->now_ns);
	}
}

static void arrive(struct transfer *transfer, const uint8_t *bytes, size_t length)
{
	struct packet packet;

	if (wire_parse(bytes, length, &packet) == PACKET_OK)
		responder_on_write(&transfer->responder, &packet, transfer->now_ns);
}

/* Packets that come late do so just after the next one. */
static void send_packet(struct transfer *transfer)
{
	uint8_t bytes[MAX_PACKET_BYTES];
	size_t length = requester_build(&transfer->requester, transfer->now_ns, bytes);
	enum fate fate = ++transfer->sent % FATE_EVERY ? KEPT : transfer->fate;

	requester_sent(&transfer->requester, transfer->now_ns, length);
	print("requester", fate, bytes, length);
	if (fate == KEPT)
		arrive(transfer, bytes, length);
	if (transfer->late_length)
		arrive(transfer, transfer->late, transfer->late_length);
	transfer->late_length = fate == LATE ? length : 0;
	memcpy(transfer->late, bytes, transfer->late_length);
}

static void run(struct transfer *transfer)
{
	while (!requester_done(&transfer->requester)) {
		transfer->now_ns += STEP_NS;
		if (requester_timer_ns(&transfer->requester) <= transfer->now_ns)
			requester_on_timer(&transfer->requester, transfer->now_ns);
		if (requester_send_ns(&transfer->requester) <= transfer->now_ns)
			send_packet(transfer);
		answer(transfer);
	}
}

static void set_path(struct path *path, int family, bool with_checksum, bool turned)
{
	const char *const ends[] = {family == AF_INET6 ? "fd0c:0:1::1" : "10.1.0.1",
				    family == AF_INET6 ? "fd0c:0:2::3" : "10.2.0.3"};

	*path = (struct path){.family = family,
			      .sport = 49152 + turned,
			      .tos = 26 << 2 | ECN_CE,
			      .flow_label = 0x12345,
			      .remote_qpn = turned ? REQUESTER_QPN : RESPONDER_QPN,
			      .with_checksum = with_checksum};
	if (inet_pton(family, ends[turned], path->local) != 1 ||
	    inet_pton(family, ends[!turned], path->remote) != 1)
		abort();
}

static void dump(int family, bool with_checksum, uint32_t mtu, uint64_t message_bytes, enum fate fate)
{
	struct transfer *transfer = need(calloc(1, sizeof(*transfer)));
	struct requester *requester = &transfer->requester;

	transfer->now_ns = START_NS;
	transfer->fate = fate;
	*requester = (struct requester){.mtu = mtu,
					.window = 8,
					.ack_every = 4,
					.retries = 7,
					.message_bytes = message_bytes,
					.total_bytes = 3 * message_bytes + 1,
					.timeout_ns = TIMEOUT_NS};
	requester->qp.qpn = REQUESTER_QPN;
	requester->qp.first_psn = PSN_MASK - 2;
	set_path(&requester->qp.path, family, with_checksum, false);
	requester_init(requester);
	transfer->responder.qp.qpn = RESPONDER_QPN;
	transfer->responder.qp.first_psn = PSN_MASK - 2;
	set_path(&transfer->responder.qp.path, family, with_checksum, true);
	printf("transfer %u %llu\n", mtu, (unsigned long long)requester->total_bytes);
	run(transfer);
	printf("gaps %llu %llu\n", (unsigned long long)transfer->responder.gap_total,
	       (unsigned long long)transfer->responder.gaps_overtaken);
	free(requester->sent_ns);
	free(requester->started_ns);
	free(requester->go_backs);
	free(transfer->responder.gaps);
	free(transfer);
}

void dump_transfers(void)
{
	static const int families[] = {AF_INET, AF_INET6};

	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
		for (int with_checksum = 0; with_checksum < 2; with_checksum++) {
			for (uint64_t bytes = 1; bytes <= 9; bytes++)
				dump(families[i], with_checksum, 256, bytes, LOST);
			for (uint64_t bytes = 1021; bytes <= 1025; bytes++)
				dump(families[i], with_checksum, 256, bytes, LOST);
			dump(families[i], with_checksum, 4096, 10003, LOST);
			dump(families[i], with_checksum, 256, 5000, LATE);
		}
}
