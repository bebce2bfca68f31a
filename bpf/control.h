/* SPDX-License-Identifier: GPL-2.0-only */
/* What may be changed while packets flow, and which slices there are. */
#pragma once

#include <stdbool.h>

#include "maps.h"

/* Which of two records is in force. Clang is not to know that there are two: on arm64 only an address that is
 * computed from it, not a branch, keeps a record from being read before it. */
static __always_inline __u32 active_of(const __u32 *active)
{
	__u32 index = *(const volatile __u32 *)active & 1;

	barrier_var(index);
	return index;
}

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
