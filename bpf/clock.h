/* SPDX-License-Identifier: GPL-2.0-only */
/* The one place where a clock is read, the way from it to local time, and from there to the common timeline.
 */
#pragma once

#include "maps.h"

/* delta_ns * q48 / 2^48 without overflow for |delta_ns| < 2^44 (4.9 hours) and rates below 2^-14 (61 ppm);
 * for 200 ppm, which no oscillator in use reaches, still for 1.2 hours. */
static __always_inline __s64 scale_q48(__s64 delta_ns, __s64 q48)
{
	__s64 high = (delta_ns >> 16) * q48;
	__s64 low = ((delta_ns & 0xffff) * q48) >> 16;

	return (high + low) >> 32;
}

/* delta_ns * q40 / 2^40 without overflow for |delta_ns| <= BASE_REACH_NS and rates below an eighth (125,000
 * ppm). */
static __always_inline __s64 scale_q40(__s64 delta_ns, __s64 q40)
{
	__s64 high = (delta_ns >> 20) * q40;
	__s64 low = ((delta_ns & 0xfffff) * q40) >> 20;

	return (high + low) >> 20;
}

/* So far from its reference (19.5 hours) a base line's rate holds. Beyond, local time goes on as
 * CLOCK_MONOTONIC does: nobody has looked at the clock for as long. */
#define BASE_REACH_NS (1LL << 46)

/* What CLOCK_MONOTONIC shows in this host's lab. */
static __always_inline __u64 test_clock_mono_ns(__u64 mono)
{
	__u32 bits = CWDP_TEST_CLOCK_STEP_BITS, log2 = test_clock_steps_log2;
	__s64 since_ns = mono - test_clock_base_ns, phase_q16;
	__u32 index = (since_ns >> bits) & ((1U << log2) - 1);
	struct cwdp_test_clock_step *step;

	step = bpf_map_lookup_elem(&test_clock, &index);
	if (!step)
		return mono;
	phase_q16 = step->phase_q16 + (since_ns >> bits >> log2) * test_clock_cycle_q16 +
		    (((since_ns & ((1LL << bits) - 1)) * step->rate_q40) >> (40 - 16));
	return mono + test_clock_offset_ns + (phase_q16 >> 16);
}

/* This host's local time: CLOCK_MONOTONIC_RAW, which programs cannot read, and a constant. It is
 * CLOCK_MONOTONIC less its discipline, by the agent's base line. */
static __always_inline __u64 clock_local_ns(void)
{
	__u64 mono = bpf_ktime_get_ns();
	struct cwdp_base_line *line;
	struct cwdp_clock *state;
	__s64 delta_ns;
	__u32 zero = 0;

	if (test_clock_base_ns)
		mono = test_clock_mono_ns(mono);
	state = bpf_map_lookup_elem(&clock, &zero);
	if (!state)
		return mono;
	line = &state->base_lines[active_of(&state->base_active)];
	delta_ns = mono - line->ref_mono_ns;
	if (delta_ns > BASE_REACH_NS)
		delta_ns = BASE_REACH_NS;
	if (delta_ns < -BASE_REACH_NS)
		delta_ns = -BASE_REACH_NS;
	return mono + line->ahead_ns + scale_q40(delta_ns, line->rate_q40);
}

/* So long after somebody has looked at the clock a line says anything: CLOCK_MONOTONIC's discipline may have
 * changed since, and nobody has taken that out. */
#define BASE_LOOKED_AFTER_NS 2000000000LL

/* As far from its reference a line says anything: scale_q48 holds, at any rate that it can have. */
#define LINE_REACH_NS (1LL << 44)

/* Has nobody looked at the clock for long? Where its discipline cannot be read nobody ever does. */
static __always_inline bool is_base_old(const struct cwdp_clock *state, __u64 local_ns)
{
	const struct cwdp_base_line *base = &state->base_lines[active_of(&state->base_active)];

	return base->ref_mono_ns &&
	       (__s64)(local_ns - base->ref_mono_ns - base->ahead_ns) > BASE_LOOKED_AFTER_NS;
}

/* A host's clock against the timeline at one moment. */
struct clock_reading {
	__s64 offset_ns; /* timeline minus local */
	__u32 bound_ns;
};

static __always_inline struct clock_reading clock_read_line(__u64 local_ns)
{
	struct clock_reading reading = {.bound_ns = CWDP_BOUND_UNSYNCED};
	struct cwdp_clock_line *line;
	struct cwdp_clock *state;
	__u32 zero = 0;
	__s64 delta_ns, slewed_ns;
	__u64 bound_ns;

	state = bpf_map_lookup_elem(&clock, &zero);
	if (!state)
		return reading;
	line = &state->lines[active_of(&state->active)];
	if (!line->synced || is_base_old(state, local_ns))
		return reading;
	delta_ns = local_ns - line->ref_local_ns;
	if (delta_ns >= LINE_REACH_NS || delta_ns <= -LINE_REACH_NS)
		return reading;
	slewed_ns = delta_ns < line->slew_ns ? delta_ns : line->slew_ns;
	reading.offset_ns =
		line->offset_ns + scale_q48(delta_ns, line->drift_q48) + scale_q48(slewed_ns, line->slew_q48);
	if (delta_ns < 0)
		delta_ns = -delta_ns;
	bound_ns = line->bound_ns + scale_q48(delta_ns, line->bound_drift_q48);
	if (bound_ns < CWDP_BOUND_UNSYNCED)
		reading.bound_ns = bound_ns;
	return reading;
}

/* Both clocks' bounds together; unsynced if either is. */
static __always_inline __u32 add_bounds(__u32 a, __u32 b)
{
	__u64 sum = (__u64)a + b;

	return sum < CWDP_BOUND_UNSYNCED ? sum : CWDP_BOUND_UNSYNCED;
}
