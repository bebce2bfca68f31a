/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of InfiniBand: a port with an LMC has as many LIDs as paths lead to it (IBTA volume 1, 4.1.3).
 *
 * What arrives is taken only from the LID that its queue pair sends to (9.6.1.5). So both ends of a
 * connection have to take the same path: each sends to the LID of the same number, from its own of that
 * number. Neither asks the other. Both go by numbers that both know, and by the agents' tables, which are
 * alike.
 */
#pragma once

#include "../known.h"

#include <stdbool.h>
#include <stdint.h>

#define LIDS_LAST     0xbfff /* of unicast */
#define LIDS_MOST_LMC 7

/* A port's: the first, and how many bits of it are path bits. */
struct lids {
	uint16_t lid;
	uint8_t lmc;
};

/* A bit of each of so many ports of a device that is InfiniBand's, by number. */
uint64_t lids_ports(struct ibv_context *context, uint8_t ports);

/* Asks the port of a queue pair for its LIDs; false where it is not InfiniBand's, or has none. */
bool lids_of(const struct known *known, uint8_t port, struct lids *ours);

/* The number of the path by a destination's LID: its path bits. -1 where one of the ends has no such path. */
int lids_number(const struct lids *ours, uint32_t dlid, uint32_t lmc);

/* Has a connection leave by the path of the table. False, and the path is the program's, where the table has
 * none, where it is not both ends', or where the program has chosen one itself.
 */
bool lids_take(const struct lids *ours, uint32_t qpn, uint32_t dest_qpn, struct ibv_ah_attr *path);
