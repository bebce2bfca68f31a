/* SPDX-License-Identifier: Apache-2.0 */
/* An Ethernet frame as the fuzzer sees it: where its headers are, its ICRC and UDP checksum. Written down a
 * second time, from the standards, so that the programs are not judged by themselves. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_MAX     3500 /* BPF_PROG_TEST_RUN takes no longer ones for tc */
#define UDP_HEADER    8
#define BTH_BYTES     12
#define ICRC_BYTES    4
#define ROCE_PORT     4791
#define PROBE_VERSION 4 /* of a probe, from its magic on */
#define PROBE_KIND    5
#define PROBE_STAMPED 24 /* t1 */
#define PROBE_MAC     56

struct frame {
	uint8_t bytes[FRAME_MAX];
	size_t length;
};

/* Offsets of a UDP datagram that is not fragmented, without IP options or extension headers. */
struct layout {
	size_t ip;
	size_t udp;
	bool is_ipv6;
};

uint32_t get16(const uint8_t *at);
uint32_t get32(const uint8_t *at);
void put16(uint8_t *at, uint32_t value);
void put32_little(uint8_t *at, uint32_t value);
uint32_t get32_little(const uint8_t *at);

/* Fills the table; to be called once, before the functions below. */
void crc_init(void);

/* Is it such a datagram to the port of RoCEv2, with a whole BTH? */
bool frame_parse(const struct frame *frame, struct layout *layout);

/* Has it opcode, queue pair and magic of cwdp's probes? */
bool frame_is_probe(const struct frame *frame, const struct layout *layout);

/* The IP payload's length by the IP header. */
uint32_t frame_ip_payload(const struct frame *frame, const struct layout *layout);

/* The ICRC (IBTA A17.3.3) of a datagram whose UDP length is right. */
uint32_t frame_icrc(const struct frame *frame, const struct layout *layout);

/* Is the ICRC that it has the right one? Its UDP length must be right. */
bool frame_icrc_is_right(const struct frame *frame);

/* The sum that the UDP checksum makes zero (RFC 768, RFC 8200), modulo 65535. */
uint32_t frame_udp_sum(const struct frame *frame, const struct layout *layout);
