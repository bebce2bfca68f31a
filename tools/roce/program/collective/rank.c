/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/rank.h"

#include <stdlib.h>

void rank_init(struct rank *rank)
{
	for (size_t i = 0; i < sizeof(rank->random) / sizeof(*rank->random); i++)
		rank->random[i] = rank->seed >> 16 * i;
	for (size_t i = 0; i < rank->step_total; i++)
		for (size_t j = 0; j < rank->steps[i].output_total; j++)
			requester_gate(rank->steps[i].outputs[j].requester);
}

static void begin_iteration(struct rank *rank, uint64_t now_ns)
{
	rank->start_ns = now_ns;
	rank->current = 0;
	rank->draw = 2 * erand48(rank->random) - 1;
	for (size_t i = 0; i < rank->step_total; i++)
		rank->steps[i].ready_ns = rank->steps[i].begun_ns = 0;
}

static bool inputs_arrived(const struct step *step)
{
	for (size_t i = 0; i < step->input_total; i++)
		if (step->inputs[i].responder->messages == step->inputs[i].responder->used)
			return false;
	return true;
}

static void use_inputs(struct step *step, uint64_t now_ns)
{
	for (size_t i = 0; i < step->input_total; i++)
		step->inputs[i].responder->used++;
	step->ready_ns = now_ns;
}

static void post_outputs(struct step *step, uint64_t now_ns)
{
	for (size_t i = 0; i < step->output_total; i++)
		requester_post(step->outputs[i].requester);
	step->begun_ns = now_ns;
}

static uint64_t due_ns(const struct rank *rank, const struct step *step)
{
	return step->ready_ns + step->compute_ns + (int64_t)(rank->draw * step->jitter_ns);
}

/* Returns true if the step has begun. */
static bool begin_step(const struct rank *rank, struct step *step, uint64_t now_ns)
{
	if (!step->ready_ns) {
		if (!inputs_arrived(step))
			return false;
		use_inputs(step, now_ns);
	}
	if (now_ns < due_ns(rank, step))
		return false;
	post_outputs(step, now_ns);
	return true;
}

static bool outputs_acknowledged(const struct rank *rank)
{
	for (size_t i = 0; i < rank->step_total; i++) {
		const struct step *step = &rank->steps[i];

		for (size_t j = 0; j < step->output_total; j++) {
			const struct requester *requester = step->outputs[j].requester;

			if (requester->failed || !requester_done(requester))
				return false;
		}
	}
	return true;
}

/* When the stall ends that a time is in, 0 if it is in none. */
static uint64_t stall_end_ns(const struct rank *rank, uint64_t now_ns)
{
	uint64_t phase_ns;

	if (!rank->stall_ns)
		return 0;
	phase_ns = (now_ns - rank->origin_ns) % rank->stall_every_ns;
	return phase_ns < rank->stall_every_ns - rank->stall_ns ? 0
								: now_ns - phase_ns + rank->stall_every_ns;
}

bool rank_work(struct rank *rank, uint64_t now_ns)
{
	if (rank_done(rank))
		return false;
	if (!rank->origin_ns)
		rank->origin_ns = now_ns;
	rank->stalled_until_ns = stall_end_ns(rank, now_ns);
	if (rank->stalled_until_ns)
		return false;
	if (!rank->start_ns)
		begin_iteration(rank, now_ns);
	while (rank->current < rank->step_total && begin_step(rank, &rank->steps[rank->current], now_ns))
		rank->current++;
	return rank->current == rank->step_total && outputs_acknowledged(rank);
}

void rank_next(struct rank *rank)
{
	rank->iteration++;
	rank->start_ns = 0;
}

bool rank_done(const struct rank *rank)
{
	return rank->iterations && rank->iteration == rank->iterations;
}

uint64_t rank_timer_ns(const struct rank *rank)
{
	const struct step *step = &rank->steps[rank->current];

	if (rank->stalled_until_ns)
		return rank->stalled_until_ns;
	return rank->current < rank->step_total && step->ready_ns ? due_ns(rank, step) : UINT64_MAX;
}
