/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's table: which paths the queue pairs between two ends are to take. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Takes a table in place of the one before; the descriptor stays the caller's. False where it is not what it
 * must be. */
bool table_take(int fd);

/* The flow label for the next queue pair from a GID, named by device, port and index, to another; 0 where the
 * table has none.
 */
uint32_t table_flow_label(const char *device, uint32_t port, uint32_t gid_index, const uint8_t dst[16]);

/* The LID of the destination by which a queue pair leaves, from a port to another, both by their LIDs without
 * path bits, and the destination's LMC. `point` is among all shares. 0 where the table has none.
 */
uint16_t table_dlid(uint16_t lid, uint16_t dst_lid, uint32_t point, uint32_t *lmc);

/* The lowest flow label, never 0, that leads to a source port (rdma_flow_label_to_udp_sport of libibverbs).
 */
static inline uint32_t flow_label_of(uint16_t sport)
{
	uint32_t low = sport & 0x3fffu;
	return low ? low : (1u << 14 | 1);
}
