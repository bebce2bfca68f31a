/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "wire.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BATCH        32
#define PATIENCE_MS  5000
#define BUFFER_BYTES (8 << 20)
#define PSN_AT       (UDP_HEADER + 8)

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

/* A packet socket on an interface; it hears nothing where it only sends. */
static int open_socket(const char *ifname, bool hears)
{
	struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(ifname)};
	int opened = socket(AF_PACKET, SOCK_RAW, 0), on = 1, room = BUFFER_BYTES;

	address.sll_protocol = hears ? htons(ETH_P_ALL) : 0;
	if (opened < 0 || setsockopt(opened, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) ||
	    setsockopt(opened, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) ||
	    bind(opened, (struct sockaddr *)&address, sizeof(address)))
		fail(ifname);
	return opened;
}

/* Frames that are given from one NIC to another wait in the queue of the CPU that took them in: on one CPU
 * they keep their order. */
static void stay_on_this_cpu(void)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	if (sched_setaffinity(0, sizeof(here), &here))
		fail("stay on one CPU");
}

static void complain(const char *wrong, const struct frame *frame)
{
	printf("wrong tc ingress: %s;", wrong);
	for (size_t i = 0; i < frame->length; i++)
		printf("%s%02x", i ? "" : " ", frame->bytes[i]);
	putchar('\n');
	exit(1);
}

/* The next RoCEv2 frame; the host's own chatter is passed over. */
static void receive(int tap, struct frame *got, const struct frame *awaited)
{
	struct pollfd ready = {.fd = tap, .events = POLLIN};
	struct layout layout;
	ssize_t length;

	do {
		if (poll(&ready, 1, PATIENCE_MS) <= 0)
			complain("missing", awaited);
		length = recv(tap, got->bytes, sizeof(got->bytes), 0);
		if (length < 0)
			fail("receive");
		got->length = length;
	} while (!frame_parse(got, &layout));
}

static void send_frame(int wire, const struct frame *frame)
{
	if (send(wire, frame->bytes, frame->length, 0) != (ssize_t)frame->length)
		fail("send");
}

/* The first frame given, with a PSN of its own: whatever comes before it at the other end was sent before it.
 */
static void make_last(const struct corpus *corpus, uint64_t number, struct frame *last)
{
	struct layout layout;

	*last = corpus->frames[0];
	if (!frame_parse(last, &layout) || !oracle_restores(last))
		complain("the first frame is for nobody", last);
	put16(last->bytes + layout.udp + PSN_AT + 2, number);
}

uint64_t wire_fuzz(const char *in, const char *out, const struct corpus *corpus, struct dice *dice,
		   uint64_t total)
{
	static struct frame sent[BATCH], got;
	int wire = open_socket(in, false), tap = open_socket(out, true);
	uint64_t restored = 0;

	stay_on_this_cpu();
	for (uint64_t number = 0; number < total; number += BATCH - 1) {
		for (size_t i = 0; i < BATCH; i++) {
			if (i == BATCH - 1)
				make_last(corpus, number, &sent[i]);
			else
				mutate(dice, corpus, &sent[i]);
			send_frame(wire, &sent[i]);
		}
		for (size_t i = 0; i < BATCH; i++) {
			const char *wrong;

			if (!oracle_restores(&sent[i]))
				continue;
			receive(tap, &got, &sent[i]);
			wrong = oracle_ingress_restored(&corpus->rules.partner, &sent[i], &got);
			if (wrong)
				complain(wrong, &sent[i]);
			restored += i < BATCH - 1;
		}
	}
	return restored;
}
