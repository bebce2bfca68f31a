/* SPDX-License-Identifier: Apache-2.0 */
/* The queue pairs of this process, and what the agent has not been told of them. */
#pragma once

#include "wire.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A queue pair. Whoever holds it is alone with it: the program's calls wait for a move, and a move for them.
 */
struct known {
	struct known *next;         /* of those whose addresses share a bucket */
	struct known *next_by_name; /* of those whose QPNs do */
	struct known *next_untold;
	struct ibv_qp *qp;
	pthread_mutex_t busy;
	_Atomic uint32_t waiting; /* calls of the program; a move that drains gives way to them */
	uint32_t users;           /* who may still touch this memory */
	bool is_gone;
	bool is_untold;
	bool has_path;
	bool by_table;
	struct ibv_ah_attr path; /* since it went to RTR */
	struct cwdp_verbs_head name;
	uint32_t dest_qpn;
	enum cwdp_verbs_actuator actuator;
};

/* Holds a queue pair, taking it up where it is not known; NULL where there is no memory. */
struct known *known_hold(struct ibv_qp *qp);

/* Holds the queue pair of a name; NULL where there is none. */
struct known *known_hold_named(const struct cwdp_verbs_head *name);

void known_release(struct known *known);

/* What became of one that is held: its state, its path, its end. The agent will be told. */
void known_state(struct known *known, enum ibv_qp_state state);
void known_path(struct known *known, const struct ibv_ah_attr *path, uint32_t dest_qpn, bool by_table);
void known_label(struct known *known, uint32_t flow_label);
void known_gone(struct known *known);

/* Takes the next one of which the agent is to be told, with its path if it has one. False where there is
 * none. */
bool known_next_untold(struct cwdp_verbs_qp *told, bool *has_path);

/* A new agent is to be told of all. Where there is none (false), nothing is kept for one. */
void known_connected(bool connected);

/* Queue pairs that were gone and forgotten before the agent took it. */
uint64_t known_forgotten(void);

/* In a child after fork: the parent's queue pairs are not its own. */
void known_clear(void);
