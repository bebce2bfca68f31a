/* SPDX-License-Identifier: GPL-2.0-only */
/* What may be changed while packets flow, and which slices there are. */
#pragma once

#include <stdbool.h>

#include "maps.h"

static __always_inline struct cwdp_control *find_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline struct cwdp_slice_table *find_slice_table(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&slice_table, &zero);
}

static __always_inline bool has_slices(void)
{
	struct cwdp_slice_table *table = find_slice_table();

	return table && table->enforcer != CWDP_ENFORCER_NONE;
}
