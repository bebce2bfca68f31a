/* SPDX-License-Identifier: Apache-2.0 */
/* Mutated frames over real interfaces, to tc ingress: what it acts on comes from XDP, which no test run hands
 * on. */
#pragma once

#include "mutate.h"

/* Send frames into one interface, and compare what its partner is given with what the oracle expects. Returns
 * how many were for it; exits where a frame is wrong, missing or one too many. */
uint64_t wire_fuzz(const char *in, const char *out, const struct corpus *corpus, struct dice *dice,
		   uint64_t total);
