/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that are almost right. */
#pragma once

#include "oracle.h"

/* Deterministic numbers (SplitMix64): the same seed gives the same frames. */
struct dice {
	uint64_t state;
};

uint64_t dice_roll(struct dice *dice);

/* A number below a bound. */
uint32_t dice_below(struct dice *dice, uint32_t bound);

/* What frames are made of. */
struct corpus {
	struct frame *frames;
	size_t total;
	struct rules rules;
};

/* One of the frames given, changed; often with lengths, addresses and ICRC put right again afterwards. */
void mutate(struct dice *dice, const struct corpus *corpus, struct frame *made);
