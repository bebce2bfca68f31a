/* SPDX-License-Identifier: GPL-2.0-only */
/* The one place that counts. */
#pragma once

#include "maps.h"

static __always_inline void count(enum cwdp_reason reason)
{
	__u32 zero = 0;
	struct cwdp_counters *totals = bpf_map_lookup_elem(&counters, &zero);

	if (totals)
		totals->count[reason]++;
}
