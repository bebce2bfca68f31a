/* SPDX-License-Identifier: Apache-2.0 */
#include "data.h"

#include <math.h>
#include <string.h>

#define DIFFERENT 97

/* Whole numbers whose sums float32 holds exactly. */
static float number(int factor, size_t place, int iteration)
{
	return (float)factor * (float)((place + (size_t)iteration) % DIFFERENT + 1);
}

static int name_of_way(const struct options *options, int from, int to)
{
	return from * options->ranks + to + 1;
}

void data_fill(float *data, const struct plan *plan, const struct options *options, int iteration)
{
	size_t each = (size_t)options->bytes / sizeof(float), all = plan->data_bytes / sizeof(float);
	if (options->function == ALL_REDUCE) {
		for (size_t i = 0; i < each; i++)
			data[i] = number(options->rank + 1, i, iteration);
		return;
	}
	for (int to = 0; to < options->ranks; to++)
		for (size_t i = 0; i < each; i++)
			data[(size_t)to * each + i] =
				number(name_of_way(options, options->rank, to), i, iteration);
	for (size_t i = plan->received_at / sizeof(float); i < all; i++)
		data[i] = NAN;
}

void data_give(const float *data, const struct plan_step *step, void *into)
{
	memcpy(into, (const char *)data + step->offset, step->bytes);
}

void data_take(float *data, const struct plan_step *step, const void *from)
{
	float *into = data + step->offset / sizeof(float);
	const float *more = from;
	if (!step->is_added) {
		memcpy(into, from, step->bytes);
		return;
	}
	for (size_t i = 0; i < step->bytes / sizeof(float); i++)
		into[i] += more[i];
}

static long wrong_from(const float *received, const struct options *options, int factor, int iteration)
{
	long wrong = 0;
	for (size_t i = 0; i < (size_t)options->bytes / sizeof(float); i++)
		wrong += received[i] != number(factor, i, iteration);
	return wrong;
}

long data_wrong(const float *data, const struct plan *plan, const struct options *options, int iteration)
{
	if (options->function == ALL_REDUCE)
		return wrong_from(data, options, options->ranks * (options->ranks + 1) / 2, iteration);
	long wrong = 0;
	for (int i = 0; i < plan->calls; i++) {
		int peer = plan->call[i].peer;
		const float *received =
			data + (plan->received_at + (size_t)peer * (size_t)options->bytes) / sizeof(float);
		if (!strcmp(plan->call[i].function, "Recv"))
			wrong += wrong_from(received, options, name_of_way(options, peer, options->rank),
					    iteration);
	}
	return wrong;
}
