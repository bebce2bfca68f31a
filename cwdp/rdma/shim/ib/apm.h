/* SPDX-License-Identifier: Apache-2.0 */
/* Automatic path migration (IBTA volume 1, 17.2.8): a live change of path over InfiniBand, in two steps of
 * which each is done at both ends before the other.
 *
 * A queue pair is armed once the far end is in the state of REARM, too: by packets, so there must be some. An
 * end that migrates says so in its packets, by which the other does. What a program has loaded itself is left
 * alone.
 */
#pragma once

#include "../known.h"

/* Loads the alternate path of an order. */
int apm_load(struct known *known, const struct cwdp_verbs_move *order);

/* Has it migrate to the path that was loaded, or sees that it has. `path`: the one that it has then. EAGAIN
 * where it does not come to be armed within a moment. */
int apm_migrate(struct known *known, const struct cwdp_verbs_move *order, struct ibv_ah_attr *path);
