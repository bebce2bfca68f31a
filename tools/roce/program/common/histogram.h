/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of durations in ns, in buckets less than 1 % wide: 128 to each power of two. */
#pragma once

#include <stdint.h>

#define HISTOGRAM_BITS    7
#define HISTOGRAM_OCTAVES 34 /* above the exact ones: up to 2^41 ns, longer ones count as that long */
#define HISTOGRAM_BUCKETS ((HISTOGRAM_OCTAVES + 1) << HISTOGRAM_BITS)

struct histogram {
	uint64_t max_ns;
	uint32_t counts[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t duration_ns);

/* The duration in the middle of a bucket. */
uint64_t histogram_middle_ns(uint32_t bucket);
