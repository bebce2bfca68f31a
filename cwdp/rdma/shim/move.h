/* SPDX-License-Identifier: Apache-2.0 */
/* Having a queue pair that sends take another path, by what its device has for that. */
#pragma once

#include "wire.h"

#include <infiniband/verbs.h>
#include <stdbool.h>

/* What can move the queue pairs of a device, but draining them. */
struct mover {
	int (*set_sport)(struct ibv_qp *qp, uint16_t sport);
	enum cwdp_verbs_actuator actuator;
	bool needs_doorbell; /* after draining, to begin with what was posted meanwhile */
	bool has_apm;        /* automatic path migration */
	uint64_t ib_ports;   /* a bit of each port that is InfiniBand's, by number */
};

/* Looked up once a device that is open, as that takes the loader's lock. */
struct mover mover_of(struct ibv_context *context);
void mover_forget(struct ibv_context *context);

/* What moves one of a device's queue pairs, whose port is InfiniBand's or not. */
enum cwdp_verbs_actuator mover_actuator(const struct mover *mover, bool by_lid);

/* Does what is ordered, and says what came of it. */
struct cwdp_verbs_moved move(const struct cwdp_verbs_move *order);

/* By CLOCK_MONOTONIC. */
uint64_t now_ns(void);
