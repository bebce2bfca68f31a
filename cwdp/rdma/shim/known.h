/* SPDX-License-Identifier: Apache-2.0 */
/* The queue pairs of this process, and what the agent has not been told of them. */
#pragma once

#include "move.h"
#include "wire.h"

#include <infiniband/verbs.h>
#include <stdbool.h>

/* The path that a call has given a queue pair. */
struct taken {
	struct ibv_ah_attr path;
	bool by_table;
	uint16_t lid; /* of its port without path bits; 0 where that is not InfiniBand's */
};

/* A queue pair. Calls of the program and a move of it shut each other out; calls do not wait for one another,
 * as one that destroys may wait for the program itself.
 */
struct known {
	struct known *next_by_address;
	struct known *next_by_name;
	struct known *earlier, *later; /* of those untold */
	struct ibv_qp *qp;
	struct ibv_context *context;
	struct mover mover;
	uint32_t calls; /* of the program, under way or waiting for a move to end */
	bool is_moving;
	bool is_gone;
	bool is_untold;
	bool is_path_untold;
	bool was_told;
	bool has_path; /* since it went to RTR */
	bool by_table;
	bool has_own_alternate; /* the program has loaded an alternate path (APM) */
	uint16_t lid;           /* as in struct taken */
	uint16_t loaded_dlid;   /* of the alternate path that the agent had loaded; 0 for none */
	struct ibv_ah_attr path;
	struct cwdp_verbs_head name;
	uint32_t dest_qpn;
	uint32_t count_place;
};

/* The program calls with a queue pair, which is taken up where it is not known: no move of it is under way
 * until known_leave. NULL where there is no memory.
 */
struct known *known_enter(struct ibv_qp *qp);

/* The same for one that was made just now: whatever was known by its address is gone. */
struct known *known_enter_new(struct ibv_qp *qp);

void known_leave(struct known *known);

/* What a call has done. `taken` counts where the mask has a path. */
void known_changed(struct known *known, const struct ibv_qp_attr *attr, int mask, const struct taken *taken);
void known_gone(struct known *known);

/* Its device has gone over to an alternate path by itself, as is seen during a move: the agent is told. */
void known_went(struct known *known, const struct ibv_ah_attr *now);

/* The program closes a device: what it leaves of queue pairs is not to be touched any more. */
void known_close(struct ibv_context *context);

/* Takes the queue pair of a name for a move. ENOENT where there is none, EBUSY while the program calls with
 * it. */
int known_begin_move(const struct cwdp_verbs_head *name, struct known **taken);

/* Whether the program waits for the move's end, or is about to end itself. */
bool known_is_called(struct known *known);

/* `path`: the one that it has now; NULL where that is as before. */
void known_end_move(struct known *known, const struct ibv_ah_attr *path);

/* Takes the next one of which the agent is to be told, as a QP_RTR or, where its path is told or it has none,
 * a QP_STATE. False where there is none.
 */
bool known_next_untold(struct cwdp_verbs_qp *told);

/* Whether the agent's thread is to be woken, as there is something to tell again. */
bool known_has_news(void);

/* A new agent is to be told of all. Where there is none (false), nothing is kept for one. */
void known_connected(bool connected);

/* Queue pairs that had a path and were gone before an agent had heard of them. */
uint64_t known_forgotten(void);

/* In a child after fork, with the guard held: the parent's queue pairs are not its own. */
void known_after_fork(void);
