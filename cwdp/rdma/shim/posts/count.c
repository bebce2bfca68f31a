/* SPDX-License-Identifier: Apache-2.0 */
/* ibv_post_send is no function of libibverbs: programs call by a pointer that the provider has put into the
 * device's context. These functions stand before it, one for each function of a provider, whatever context
 * its pointer is copied to. No provider of rdma-core changes it after a device is opened; one that did would
 * not be counted from then on.
 *
 * What is posted otherwise is not seen: by ibv_wr_..., which are functions of each queue pair, and by
 * programs that write into the send queue themselves.
 */
#include "count.h"

#include "../guard.h"
#include "../real.h"

#include <stdatomic.h>
#include <stddef.h>

#define PLACES     8192
#define STEPS      16
#define PROVIDERS  8
#define MOST_PARTS 64 /* no device takes more of a request; one that claims more is refused, not read */

typedef int (*post_fn)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

/* Found by hash, and never freed: a queue pair may end while another thread looks. */
struct place {
	_Atomic(struct ibv_qp *) qp;
	_Atomic uint64_t bytes;
	uint64_t told;
};

static struct place places[PLACES];
static uint32_t next_told;
static _Atomic(post_fn) real[PROVIDERS];
static _Atomic(nccl_posted_fn) plugin;

/* The place that has `which` where a queue pair's may be. */
static struct place *place_of(const struct ibv_qp *qp, const struct ibv_qp *which)
{
	uint64_t first = (uint64_t)((uintptr_t)qp >> 4) * 0x9e3779b97f4a7c15ull >> 51;
	for (uint32_t step = 0; step < STEPS; step++) {
		struct place *place = &places[(first + step) % PLACES];
		if (atomic_load_explicit(&place->qp, memory_order_relaxed) == which)
			return place;
	}
	return NULL;
}

static bool sends_its_parts(const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return wr->num_sge <= MOST_PARTS;
	default:
		return false;
	}
}

struct posted {
	uint64_t bytes;
	uint64_t last_wr_id;
	uint32_t requests;
};

static struct posted read_requests(const struct ibv_send_wr *wr)
{
	struct posted posted = {0};
	for (; wr; wr = wr->next) {
		for (int i = 0; sends_its_parts(wr) && i < wr->num_sge; i++)
			posted.bytes += wr->sg_list[i].length;
		posted.last_wr_id = wr->wr_id;
		posted.requests++;
	}
	return posted;
}

/* Requests are read before they are posted: another thread may free them as soon as they are done. What was
 * posted before one that is refused is not counted.
 */
static inline int post(int provider, struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct place *place = place_of(qp, qp);
	nccl_posted_fn tell = atomic_load_explicit(&plugin, memory_order_relaxed);
	struct posted posted = place || tell ? read_requests(wr) : (struct posted){0};
	int failed = atomic_load_explicit(&real[provider], memory_order_relaxed)(qp, wr, bad);
	if (failed)
		return failed;
	if (place && posted.bytes)
		atomic_fetch_add_explicit(&place->bytes, posted.bytes, memory_order_relaxed);
	if (tell)
		tell(qp->qp_num, posted.last_wr_id, posted.bytes, posted.requests);
	return 0;
}

#define POST(provider)                                                                                       \
	static int post_##provider(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)      \
	{                                                                                                    \
		return post(provider, qp, wr, bad);                                                          \
	}

POST(0)
POST(1)
POST(2)
POST(3)
POST(4)
POST(5)
POST(6)
POST(7)

static const post_fn ours[PROVIDERS] = {post_0, post_1, post_2, post_3, post_4, post_5, post_6, post_7};

static post_fn counting(post_fn theirs)
{
	for (int i = 0; i < PROVIDERS; i++)
		if (ours[i] == theirs)
			return theirs;
	for (int i = 0; i < PROVIDERS; i++) {
		if (!real[i])
			real[i] = theirs;
		if (real[i] == theirs)
			return ours[i];
	}
	return theirs;
}

void count_posts_of(struct ibv_context *context)
{
	pthread_mutex_lock(&guard);
	if (context->ops.post_send)
		context->ops.post_send = counting(context->ops.post_send);
	pthread_mutex_unlock(&guard);
}

void count_find_plugin(void)
{
	if (!plugin)
		plugin = real_nccl_posted();
}

uint32_t count_begin(struct ibv_qp *qp)
{
	struct place *place = place_of(qp, NULL);
	if (!place)
		return CWDP_VERBS_UNCOUNTED;
	place->bytes = place->told = 0;
	place->qp = qp;
	return (uint32_t)(place - places);
}

void count_end(uint32_t place)
{
	if (place != CWDP_VERBS_UNCOUNTED)
		places[place].qp = NULL;
}

static void take(struct cwdp_verbs_sent *sent, uint32_t which)
{
	struct place *place = &places[which];
	uint64_t bytes = atomic_load_explicit(&place->bytes, memory_order_relaxed);
	if (!place->qp || bytes == place->told)
		return;
	place->told = bytes;
	sent->place[sent->count] = which;
	sent->bytes[sent->count++] = bytes;
}

bool count_next(struct cwdp_verbs_sent *sent)
{
	*sent = (struct cwdp_verbs_sent){.head = {.magic = CWDP_VERBS_MAGIC, .kind = CWDP_VERBS_SENT}};
	pthread_mutex_lock(&guard);
	while (next_told < PLACES && sent->count < CWDP_VERBS_COUNTS)
		take(sent, next_told++);
	if (!sent->count)
		next_told = 0;
	pthread_mutex_unlock(&guard);
	return sent->count;
}

void count_anew(void)
{
	pthread_mutex_lock(&guard);
	for (int i = 0; i < PLACES; i++)
		if (places[i].told)
			places[i].told = 0;
	next_told = 0;
	pthread_mutex_unlock(&guard);
}
