/* SPDX-License-Identifier: Apache-2.0 */
#include "common/histogram.h"

#define EXACT (1u << HISTOGRAM_BITS) /* below this, a bucket for each ns */

void histogram_add(struct histogram *histogram, uint64_t duration_ns)
{
	uint64_t bucket = duration_ns;

	if (duration_ns > histogram->max_ns)
		histogram->max_ns = duration_ns;
	if (duration_ns >= EXACT) {
		uint32_t shift = 63 - __builtin_clzll(duration_ns) - HISTOGRAM_BITS;

		bucket = ((uint64_t)shift << HISTOGRAM_BITS) + (duration_ns >> shift);
	}
	histogram->counts[bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1]++;
}

uint64_t histogram_middle_ns(uint32_t bucket)
{
	uint32_t shift;

	if (bucket < EXACT)
		return bucket;
	shift = (bucket >> HISTOGRAM_BITS) - 1;
	return (((uint64_t)(bucket & (EXACT - 1)) + EXACT) << shift) + ((1ull << shift) >> 1);
}
