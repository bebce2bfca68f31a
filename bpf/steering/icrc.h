/* SPDX-License-Identifier: GPL-2.0-only */
/* How the ICRC of a RoCEv2 packet (IBTA A17.3.3) changes with its UDP source port, without reading the
 * packet.
 *
 * A CRC is linear: changing 16 bits that have n bytes behind them changes it by those bits, as a polynomial,
 * times x^(8 n + 32). The ICRC is the CRC-32 of Ethernet, least significant bit first, in little-endian
 * order. The two last answers are kept with each queue pair: full packets and acknowledgements. */
#pragma once

#include "maps.h"

#define CRC32_POLYNOMIAL 0xedb88320U /* reflected */
#define PORT_BITS        16
#define ICRC_SHORT_BYTES 128 /* acknowledgements are shorter, full packets longer */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the ICRC is handled in little-endian order");

static __always_inline __u32 bit_times(__u32 bit, __u32 value)
{
	barrier_var(bit); /* clang would make a mask of it */
	return value * bit;
}

/* bits * power mod P, the lowest bit being that of the highest power. By multiplication rather than by masks:
 * the verifier follows both values of a mask, 2^16 ways in all. */
__noinline __u32 crc_multiply(__u32 bits, __u32 power)
{
	__u32 product = 0;

#pragma unroll
	for (int i = 0; i < PORT_BITS; i++) {
		product = (product >> 1) ^ bit_times(product & 1, CRC32_POLYNOMIAL);
		product ^= bit_times(bits >> i & 1, power);
	}
	return product;
}

/* The change of the ICRC for a change of the source port (old XOR new, as in memory); udp_bytes is a multiple
 * of 4 and at most CWDP_UDP_MAX. Cause and effect are kept in one word, so that no CPU sees half of it. */
static __always_inline __u32 icrc_change(struct cwdp_qp *qp, __u32 udp_bytes, __be16 port_change)
{
	__u64 *known = &qp->icrc_known[udp_bytes > ICRC_SHORT_BYTES];
	__u32 cause = udp_bytes << 16 | port_change, index = udp_bytes / 4, change;
	__u64 found = READ_ONCE(*known);

	if (found >> 32 == cause)
		return found;
	barrier_var(index); /* clang knows the bound and would leave out the check that the verifier needs */
	if (index > CWDP_UDP_MAX / 4)
		return 0;
	change = crc_multiply(port_change, icrc_powers[index]);
	WRITE_ONCE(*known, (__u64)cause << 32 | change);
	return change;
}
