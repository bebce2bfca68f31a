/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include "told.h"

#include <stdlib.h>

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int chunks_of(size_t bytes, const struct options *options)
{
	size_t chunk = (size_t)options->chunk_bytes;
	return (int)((bytes + chunk - 1) / chunk);
}

static struct plan_op *add_op(struct plan *plan, struct plan_op op)
{
	op.after = -1;
	op.call = plan->calls - 1;
	op.step = calloc((size_t)op.steps, sizeof(*op.step));
	if (!op.step)
		give_up(FAILED, "there is no memory for %d steps", op.steps);
	plan->op[plan->ops] = op;
	return &plan->op[plan->ops++];
}

/* NCCL's ring: each block goes round twice, to be summed and then to be known to all. Chunk by chunk: the
 * first of all blocks go round, then the second. In step s a rank sends the block that it has just received.
 */
static void ring_on(struct plan *plan, const struct options *options, int channel)
{
	int rank = options->rank, ranks = options->ranks, round = 2 * (ranks - 1);
	size_t part = (size_t)options->bytes / (size_t)options->channels, block = part / (size_t)ranks;
	int chunks = chunks_of(block, options);
	struct plan_op op = {.channel = channel, .steps = chunks * round};
	int receiving = plan->ops;
	op.peer = (rank + ranks - 1) % ranks;
	struct plan_op *from = add_op(plan, op);
	op.peer = (rank + 1) % ranks;
	op.is_send = true;
	struct plan_op *to = add_op(plan, op);
	to->after = receiving;
	for (int i = 0; i < op.steps; i++) {
		int chunk = i / round, step = i % round;
		size_t within = (size_t)chunk * (size_t)options->chunk_bytes;
		size_t begins = (size_t)channel * part + within;
		size_t sent = (size_t)((rank - step + 2 * ranks) % ranks);
		size_t received = (size_t)((rank - step - 1 + 2 * ranks) % ranks);
		size_t bytes = least(block - within, (size_t)options->chunk_bytes);
		to->step[i] = (struct plan_step){
			.offset = begins + sent * block, .bytes = bytes, .needs = step ? i : 0};
		from->step[i] = (struct plan_step){
			.offset = begins + received * block, .bytes = bytes, .is_added = step < ranks - 1};
	}
}

static void pass(struct plan *plan, const struct options *options, int peer, bool is_send)
{
	size_t part = (size_t)options->bytes / (size_t)options->channels;
	plan->call[plan->calls++] = (struct plan_call){is_send ? "Send" : "Recv", peer};
	for (int channel = 0; channel < options->channels; channel++) {
		struct plan_op op = {.peer = peer,
				     .channel = channel,
				     .is_send = is_send,
				     .steps = chunks_of(part, options)};
		struct plan_op *added = add_op(plan, op);
		size_t begins = (is_send ? 0 : plan->received_at) + (size_t)peer * (size_t)options->bytes +
				(size_t)channel * part;
		for (int i = 0; i < op.steps; i++) {
			size_t within = (size_t)i * (size_t)options->chunk_bytes;
			added->step[i] = (struct plan_step){
				.offset = begins + within,
				.bytes = least(part - within, (size_t)options->chunk_bytes)};
		}
	}
}

void plan_make(struct plan *plan, const struct options *options)
{
	int rank = options->rank, ranks = options->ranks;
	*plan = (struct plan){.data_bytes = (size_t)options->bytes};
	if (options->function == ALL_REDUCE) {
		plan->call[plan->calls++] = (struct plan_call){"AllReduce", -1};
		for (int channel = 0; channel < options->channels; channel++)
			ring_on(plan, options, channel);
		return;
	}
	plan->received_at = (size_t)ranks * (size_t)options->bytes;
	plan->data_bytes = 2 * plan->received_at;
	if (options->function == SEND) {
		pass(plan, options, rank ^ 1, rank % 2 == 0);
		return;
	}
	for (int i = 1; i < ranks; i++) {
		pass(plan, options, (rank + i) % ranks, true);
		pass(plan, options, (rank + ranks - i) % ranks, false);
	}
}
