/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's table: which flow labels the queue pairs between two GIDs are to have. */
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
