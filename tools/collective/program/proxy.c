/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy.h"

#include "data.h"
#include "meet.h"
#include "net.h"
#include "told.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IDLE_US   50
#define LOOK_NS   50000000u
#define NS_PER_S  1000000000u
#define NS_PER_MS 1000000u

/* How far an operation is: numbers of steps. A sender's buffers are posted to the GPU, given data, sent,
 * done; a receiver's are posted to the network, received, taken in by the GPU.
 */
struct op {
	const struct plan_op *plan;
	struct connection *connection;
	struct request *request[STEPS];
	void *handle, *step[STEPS];
	int posted, given, sent, received, taken, done;
};

static const struct options *options;
static const struct plan *plan;
static const struct profiled *profiled;
static float *data;
static struct op ops[MOST_OPS];
static struct call *calls;
static uint64_t began_ns;

/* What an operation does to the profiler. */

static bool is_asked(unsigned event)
{
	return profiled->nccl && profiled->mask & event;
}

static void begin_op(struct op *op)
{
	struct nccl_proxy_op event = {
		.pid = getpid(),
		.channel = (uint8_t)op->plan->channel,
		.peer = op->plan->peer,
		.steps = op->plan->steps,
		.chunk_bytes = options->chunk_bytes,
		.is_send = op->plan->is_send,
	};
	op->handle = is_asked(NCCL_PROXY_OP) ? caller_op(profiled->nccl, profiled->context,
							 calls[op->plan->call].handle, event, options->rank)
					     : NULL;
}

static void begin_step(struct op *op, int step)
{
	op->step[step % STEPS] = is_asked(NCCL_PROXY_STEP) ? caller_step(profiled->nccl, profiled->context,
									 op->handle, step, options->rank)
							   : NULL;
}

static void record(const struct op *op, int step, int state, size_t bytes)
{
	if (profiled->nccl && (state != NCCL_SEND_PEER_WAIT || profiled->nccl->version >= 4))
		caller_record(profiled->nccl, op->step[step % STEPS], state, bytes);
}

static void end(void *handle)
{
	if (profiled->nccl)
		caller_stop(profiled->nccl, handle);
}

static void end_step(struct op *op)
{
	struct call *call = &calls[op->plan->call];
	end(op->step[op->done++ % STEPS]);
	if (op->done < op->plan->steps)
		return;
	end(op->handle);
	if (!--call->ops_left)
		call->end_ns = now_ns();
}

/* The chunk of a step, which was sent. */
static void tell_chunk(const struct op *op, int step)
{
	const struct request *request = op->request[step % STEPS];
	tell("{\"what\": \"chunk\", \"function\": \"%s\", \"seq\": %lu, \"peer\": %d, \"channel\": %d, "
	     "\"step\": %d, "
	     "\"bytes\": %zu, \"qpn\": %u, \"wr_id\": %lu, \"work_requests\": %u, \"posted_ns\": %lu, "
	     "\"done_ns\": %lu}",
	     plan->call[op->plan->call].function, calls[op->plan->call].seq, op->plan->peer,
	     op->plan->channel, step, op->plan->step[step].bytes, request->qpn, request->wr_id,
	     request->work_requests, request->posted_ns, request->done_ns);
}

/* Each of these does one thing, if there is one to be done. */

static bool send_on(struct op *op)
{
	int steps = op->plan->steps;
	if (op->posted < steps && op->posted < op->done + STEPS) {
		begin_step(op, op->posted);
		record(op, op->posted++, NCCL_SEND_GPU_WAIT, 0);
		return true;
	}
	if (op->sent < op->given) {
		size_t bytes = op->plan->step[op->sent].bytes;
		record(op, op->sent, NCCL_SEND_PEER_WAIT, 0);
		struct request *request = net_send(op->connection, bytes);
		if (request) {
			op->request[op->sent % STEPS] = request;
			record(op, op->sent++, NCCL_SEND_WAIT, bytes);
			return true;
		}
	}
	if (op->done < op->sent && op->request[op->done % STEPS]->is_done) {
		tell_chunk(op, op->done);
		end_step(op);
		return true;
	}
	return false;
}

static bool receive_on(struct op *op)
{
	if (op->posted < op->plan->steps && op->posted < op->done + STEPS) {
		begin_step(op, op->posted);
		op->request[op->posted % STEPS] = net_receive(op->connection);
		record(op, op->posted++, NCCL_RECV_WAIT, 0);
		return true;
	}
	if (op->received < op->posted && op->request[op->received % STEPS]->is_done) {
		record(op, op->received, NCCL_RECV_FLUSH_WAIT, op->plan->step[op->received].bytes);
		record(op, op->received++, NCCL_RECV_GPU_WAIT, 0);
		return true;
	}
	if (op->done < op->taken) {
		end_step(op);
		return true;
	}
	return false;
}

/* Where the data of a step are: a connection's slots follow each other from operation to operation. */
static char *slot_of(const struct op *op, int step)
{
	uint64_t before = op->connection->begun - (uint64_t)(op->plan->is_send ? op->sent : op->posted);
	return op->connection->slot[(before + (uint64_t)step) % STEPS];
}

/* The GPU takes in what has come, and gives what is to be sent next. */
static void gpu_on(struct op *op)
{
	const struct plan_op *planned = op->plan;
	if (!planned->is_send && op->taken < op->received) {
		data_take(data, &planned->step[op->taken], slot_of(op, op->taken));
		op->taken++;
	}
	if (!planned->is_send || op->given == op->posted)
		return;
	const struct plan_step *step = &planned->step[op->given];
	if (planned->after >= 0 && ops[planned->after].taken < step->needs)
		return;
	data_give(data, step, slot_of(op, op->given));
	op->given++;
}

static bool is_standing_still(uint64_t at_ns)
{
	uint64_t every_ns = (uint64_t)options->stall_every_ms * NS_PER_MS;
	return options->rank == options->stall_rank &&
	       (at_ns - began_ns) % every_ns < (uint64_t)options->stall_ms * NS_PER_MS;
}

static const char *waits_for(const struct op *op)
{
	if (!op->plan->is_send)
		return op->received < op->posted ? "data from" : "its own sums of data from";
	if (op->done < op->sent)
		return "the acknowledgement of";
	return op->sent < op->given ? "leave to send to" : "data to send to";
}

/* Nothing has happened for too long. */
static _Noreturn void stuck(void)
{
	const struct op *op = ops;
	while (op->done == op->plan->steps)
		op++;
	give_up(FAILED, "nothing has happened for %d s: waits for %s rank %d, channel %d, step %d of %d",
		options->timeout_s, waits_for(op), op->plan->peer, op->plan->channel, op->done,
		op->plan->steps);
}

/* Once round all operations; how many things were done. */
static int turn(uint64_t gpu_ready_ns)
{
	int happened = 0;
	uint64_t at_ns = now_ns();
	bool is_still = is_standing_still(at_ns);
	net_poll();
	for (struct op *op = ops; op < ops + plan->ops; op++) {
		if (op->done == op->plan->steps)
			continue;
		if (at_ns >= gpu_ready_ns)
			gpu_on(op);
		if (op->plan->is_send)
			happened += send_on(op);
		else if (!is_still)
			happened += receive_on(op);
	}
	return happened;
}

static int left(void)
{
	int number = 0;
	for (int i = 0; i < plan->calls; i++)
		number += calls[i].ops_left;
	return number;
}

/* How long nothing may happen: what the GPU takes is no fault. */
static uint64_t due_from(uint64_t at_ns, uint64_t gpu_ready_ns)
{
	uint64_t from_ns = at_ns > gpu_ready_ns ? at_ns : gpu_ready_ns;
	return from_ns + (uint64_t)(options->timeout_s) * NS_PER_S;
}

static void begin_ops(void)
{
	for (int i = 0; i < plan->ops; i++) {
		ops[i] = (struct op){.plan = &plan->op[i], .connection = ops[i].connection};
		calls[plan->op[i].call].ops_left++;
		begin_op(&ops[i]);
	}
}

void proxy_run(struct call *of, uint64_t gpu_ready_ns)
{
	uint64_t due_ns = due_from(now_ns(), gpu_ready_ns), look_ns = 0;
	calls = of;
	begin_ops();
	while (left()) {
		uint64_t at_ns = now_ns();
		if (turn(gpu_ready_ns)) {
			due_ns = due_from(at_ns, gpu_ready_ns);
			continue;
		}
		if (at_ns > due_ns)
			stuck();
		if (at_ns > look_ns) {
			meet_look();
			look_ns = at_ns + LOOK_NS;
		}
		usleep(IDLE_US);
	}
}

/* What this rank tells all others: an end for each peer, channel and direction. */
typedef struct end ends[MOST_RANKS][MOST_CHANNELS][2];

void proxy_connect(const struct options *wanted, const struct plan *of, const struct profiled *by,
		   float *memory)
{
	ends *all = calloc((size_t)wanted->ranks, sizeof(*all)), *mine = calloc(1, sizeof(*mine));
	if (!all || !mine)
		give_up(FAILED, "there is no memory for %d ranks", wanted->ranks);
	options = wanted;
	plan = of;
	profiled = by;
	data = memory;
	for (int i = 0; i < plan->ops; i++) {
		const struct plan_op *op = &plan->op[i];
		ops[i].connection = net_make(op->peer, op->channel, op->is_send);
		(*mine)[op->peer][op->channel][op->is_send] = ops[i].connection->here;
	}
	meet_gather(mine, sizeof(*mine), all);
	for (int i = 0; i < plan->ops; i++) {
		const struct plan_op *op = &plan->op[i];
		ops[i].connection->there = all[op->peer][options->rank][op->channel][!op->is_send];
		net_connect(ops[i].connection);
	}
	free(all);
	free(mine);
	began_ns = now_ns();
}
