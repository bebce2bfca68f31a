/* SPDX-License-Identifier: Apache-2.0 */
/* Having a queue pair that sends take another UDP source port, by what its device has for that. */
#pragma once

#include "known.h"

/* What can move the queue pairs of a device, but draining them. */
enum cwdp_verbs_actuator move_actuator(struct ibv_device *device);

/* Moves a queue pair that is held; 0 or an errno. `with_sqd`: where the device cannot, it may be drained for
 * it. */
int move(struct known *known, const struct cwdp_verbs_move *order, enum cwdp_verbs_actuator *by);

uint64_t move_now_ns(void);
