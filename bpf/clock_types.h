/* SPDX-License-Identifier: GPL-2.0-only */
/* How a host's clock is kept: local time, the timeline, and the lab's clocks. */
#pragma once

#include <linux/types.h>

/* local = mono + ahead_ns + (mono - ref_mono_ns) * rate, with the rate in units of 2^-40: the agent takes out
 * of CLOCK_MONOTONIC what disciplines it. All zero: local time is CLOCK_MONOTONIC. */
struct cwdp_base_line {
	__u64 ref_mono_ns;
	__s64 ahead_ns;
	__s64 rate_q40;
};

/* timeline = local + offset_ns + d * drift + min(d, slew_ns) * slew, with d = local - ref_local_ns; rates in
 * units of 2^-48. The slew ends by itself: a writer that dies in the middle of one leaves a sound line. */
struct cwdp_clock_line {
	__u64 ref_local_ns;
	__s64 offset_ns;
	__s64 drift_q48;
	__s64 slew_q48;
	__s64 slew_ns;
	__u64 bound_drift_q48; /* growth of the bound with the distance from ref_local_ns */
	__u32 bound_ns;        /* at ref_local_ns */
	__u32 synced;
};

/* The writer fills the line that is not active, then switches: a reader never sees half a line. */
struct cwdp_clock {
	struct cwdp_base_line base_lines[2];
	__u32 base_active;
	__u32 active;
	__s64 ahead_of_raw_ns; /* local - CLOCK_MONOTONIC_RAW, kept for the next agent; 0: not kept */
	struct cwdp_clock_line lines[2];
};

/* One step of a lab's clock: how far it is ahead at the step's beginning, in units of 2^-16 ns, and its rate
 * less one from there on, in units of 2^-40. */
struct cwdp_test_clock_step {
	__s64 phase_q16;
	__s64 rate_q40;
};
