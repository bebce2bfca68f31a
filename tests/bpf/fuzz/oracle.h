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
	bool switched; /* to its backup: a NAK may be given to it */
};

struct rules {
	struct steered *steered;
	size_t total;
};

/* The queue pair that a frame must be steered for; NULL where it must leave as it came. */
const struct steered *oracle_steers(const struct rules *rules, const struct frame *frame);

/* Each returns NULL, or what is wrong. */
const char *oracle_egress(const struct rules *rules, const struct frame *in, const struct frame *out,
			  int verdict);
const char *oracle_marked_egress(const struct rules *rules, const struct frame *in, const struct frame *out,
				 int verdict, uint32_t qpn);
const char *oracle_ingress(const struct frame *in, const struct frame *out, int verdict);
