/* SPDX-License-Identifier: GPL-2.0-only */
/* What may be changed while packets flow. */
#pragma once

#include "maps.h"

static __always_inline struct cwdp_control *find_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}
