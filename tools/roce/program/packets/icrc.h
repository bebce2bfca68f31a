/* SPDX-License-Identifier: Apache-2.0 */
/* The invariant CRC of RoCEv2 (IBTA Annex A17) and the UDP checksum (RFC 768, RFC 8200). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ICRC_BYTES 4

/* Fills the tables; to be called once, before anything else here. */
void icrc_init(void);

/* The ICRC of a packet that begins with its IPv4 header (no options) or IPv6 header (no extensions). `length`
 * ends before the ICRC's own place. As a number that goes onto the wire least significant byte first. */
uint32_t icrc_compute(const uint8_t *packet, size_t length);

/* Is the ICRC, which the last four of `length` bytes are, right? */
bool icrc_valid(const uint8_t *packet, size_t length);

/* The UDP checksum of such a packet over all its `length` bytes, the place of the checksum taken as zero. */
uint16_t udp_checksum(const uint8_t *packet, size_t length);

/* Is the UDP checksum right, or is there none? */
bool udp_checksum_valid(const uint8_t *packet, size_t length);
