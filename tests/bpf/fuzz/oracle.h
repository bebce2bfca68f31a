/* SPDX-License-Identifier: Apache-2.0 */
/* What a program may make of a frame, and what it must. */
#pragma once

#include "frame.h"

/* A queue pair that is steered; its address as the dataplane has it, IPv4 as ::ffff:a.b.c.d. */
struct steered {
	uint8_t address[16];
	uint32_t qpn;
	uint16_t port;
	bool flow_label;
	bool switched; /* to its backup: a NAK may be given to it, and its ACK sent again */
};

/* The NIC in whose place another receives. */
struct partner {
	uint8_t mac[6];
	uint8_t ipv4[4];
	uint8_t ipv6[16];
};

struct rules {
	struct steered *steered;
	size_t total;
	struct partner partner;
};

/* The queue pair that a frame must be steered for; NULL where it must leave as it came. */
const struct steered *oracle_steers(const struct rules *rules, const struct frame *frame);

/* An ACK? */
bool oracle_is_ack(const struct frame *frame);

/* Each returns NULL, or what is wrong. */
const char *oracle_egress(const struct rules *rules, const struct frame *in, const struct frame *out,
			  int verdict);
const char *oracle_marked_egress(const struct rules *rules, const struct frame *in, const struct frame *out,
				 int verdict, uint32_t qpn);
const char *oracle_ingress(const struct frame *in, const struct frame *out, int verdict);

/* Must a frame be given to the NIC that the one it comes to stands in for? */
bool oracle_restores(const struct frame *in);

/* Was it, as it should have been? The stack has taken the outer VLAN tag off. */
const char *oracle_ingress_restored(const struct partner *partner, const struct frame *in,
				    const struct frame *out);
