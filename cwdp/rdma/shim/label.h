/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* The lowest flow label, never 0, that leads to a source port (rdma_flow_label_to_udp_sport of libibverbs).
 */
static inline uint32_t flow_label_of(uint16_t sport)
{
	uint32_t low = sport & 0x3fffu;
	return low ? low : (1u << 14 | 1);
}
