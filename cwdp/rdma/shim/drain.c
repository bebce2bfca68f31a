/* SPDX-License-Identifier: Apache-2.0 */
#include "drain.h"

#include "real.h"

#include <errno.h>
#include <rdma/ib_user_verbs.h>
#include <time.h>
#include <unistd.h>

#define GLANCE_NS     100000
#define MOST_DRAINING 64

/* What it gave way for, and was not drained. Only the agent's thread has to do with these. */
static struct {
	struct cwdp_verbs_head name;
	const struct known *known;
} left[MOST_DRAINING];
static uint32_t left_count;

static int to_state(struct known *known, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	return real_error(real_verbs()->modify_qp(known->qp, &attr, IBV_QP_STATE));
}

/* Soft-RoCE looks at a send queue when something is posted, and by itself neither sees that the last of it
 * has drained nor begins with what was posted meanwhile. This is what its provider has the kernel do for
 * each call of ibv_post_send, without anything posted (rdma-core, providers/rxe/rxe.c).
 */
static void have_looked_at(const struct known *known)
{
	const struct ibv_qp *qp = known->qp;
	if (!known->mover.needs_doorbell)
		return;
	uint32_t unused;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_send post;
	} doorbell = {
		.header = {.command = IB_USER_VERBS_CMD_POST_SEND,
			   .in_words = sizeof(doorbell) / 4,
			   .out_words = sizeof(unused) / 4},
		.post = {.response = (uintptr_t)&unused,
			 .qp_handle = qp->handle,
			 .wqe_size = sizeof(struct ib_uverbs_send_wr)},
	};
	while (write(qp->context->cmd_fd, &doorbell, sizeof(doorbell)) < 0 && errno == EINTR)
		;
}

static int go_on(struct known *known)
{
	int failed = to_state(known, IBV_QPS_RTS);
	if (!failed)
		have_looked_at(known);
	return failed;
}

/* EINPROGRESS where it is not drained yet. */
static int glance(struct known *known)
{
	struct ibv_qp_attr attr = {0};
	struct ibv_qp_init_attr init;
	have_looked_at(known);
	int failed = real_error(real_verbs()->query_qp(known->qp, &attr, IBV_QP_STATE, &init));
	if (failed)
		return failed;
	if (attr.qp_state != IBV_QPS_SQD)
		return ENOTCONN;
	return attr.sq_draining ? EINPROGRESS : 0;
}

static int drained(struct known *known, uint64_t deadline_ns)
{
	const struct timespec pause = {.tv_nsec = GLANCE_NS};
	for (;;) {
		int failed = glance(known);
		if (failed != EINPROGRESS)
			return failed;
		if (known_is_called(known))
			return EBUSY;
		if (now_ns() > deadline_ns)
			return ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
}

static void leave(const struct known *known)
{
	left[left_count].name = known->name;
	left[left_count++].known = known;
}

static bool is_left(const struct known *known)
{
	for (uint32_t i = 0; i < left_count; i++)
		if (left[i].known == known)
			return true;
	return false;
}

int drain_and_move(struct known *known, uint32_t flow_label, uint64_t deadline_ns)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD, .ah_attr = known->path};
	attr.ah_attr.grh.flow_label = flow_label;
	if (left_count == MOST_DRAINING || is_left(known))
		return ETIMEDOUT;
	int failed = to_state(known, IBV_QPS_SQD);
	if (failed)
		return failed;
	failed = drained(known, deadline_ns);
	if (!failed)
		failed = real_error(real_verbs()->modify_qp(known->qp, &attr, IBV_QP_STATE | IBV_QP_AV));
	int stuck = go_on(known);
	if (stuck && glance(known) == EINPROGRESS)
		leave(known);
	return failed ? failed : stuck;
}

/* Whether nothing is left to do: it goes on, it is gone, or in another state, as the program wanted it. */
static bool has_resumed(uint32_t place)
{
	struct known *known;
	int failed = known_begin_move(&left[place].name, &known);
	if (failed)
		return failed == ENOENT;
	bool is_done = known != left[place].known || glance(known) == ENOTCONN || !go_on(known) ||
		       glance(known) != EINPROGRESS;
	known_end_move(known, NULL);
	return is_done;
}

bool drain_resume(void)
{
	for (uint32_t i = 0; i < left_count;)
		if (has_resumed(i))
			left[i] = left[--left_count];
		else
			i++;
	return left_count;
}
