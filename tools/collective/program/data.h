/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU would do: the numbers that are sent, summed and received. */
#pragma once

#include "plan.h"

/* The numbers that a rank begins an iteration with; those that are received are none yet. */
void data_fill(float *data, const struct plan *plan, const struct options *options, int iteration);

/* Puts a step's part of the data where it is sent from. */
void data_give(const float *data, const struct plan_step *step, void *into);

/* Takes in what was received for a step. */
void data_take(float *data, const struct plan_step *step, const void *from);

/* How many numbers are not what they must be after an iteration. */
long data_wrong(const float *data, const struct plan *plan, const struct options *options, int iteration);
