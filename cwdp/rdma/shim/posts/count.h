/* SPDX-License-Identifier: Apache-2.0 */
/* How many bytes queue pairs are given to send by ibv_post_send. */
#pragma once

#include "../wire.h"

#include <infiniband/verbs.h>
#include <stdbool.h>

/* Has what the program posts on this device counted from now on. */
void count_posts_of(struct ibv_context *context);

/* Has the plug-in for NCCL told of each post from now on, if the program has loaded it by now. Not with the
 * guard held, as the loader has a lock of its own.
 */
void count_find_plugin(void);

/* A queue pair is counted from 0 on, with the guard held; the place of its count, CWDP_VERBS_UNCOUNTED where
 * there is none.
 */
uint32_t count_begin(struct ibv_qp *qp);
void count_end(uint32_t place);

/* Takes some counts that have grown since they were taken last. False at the end of a round. */
bool count_next(struct cwdp_verbs_sent *sent);

/* A new agent has heard of none. */
void count_anew(void);
