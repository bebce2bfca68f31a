/* SPDX-License-Identifier: Apache-2.0 */
#include "known.h"

#include "guard.h"
#include "posts/count.h"
#include "real.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUCKETS 4096

pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static pthread_cond_t move_ended = PTHREAD_COND_INITIALIZER;
static struct known *by_address[BUCKETS], *by_name[BUCKETS];
static struct known untold = {.earlier = &untold, .later = &untold};
static struct known
	*unused; /* to be freed without the guard, as allocators have locks of their own at fork */
static _Atomic bool has_news;
static uint64_t forgotten;
static bool is_connected, is_inherited;
static bool is_any_moving, is_ending;

static void let_go(void)
{
	struct known *dead = unused;
	unused = NULL;
	pthread_mutex_unlock(&guard);
	while (dead) {
		struct known *next = dead->next_by_address;
		free(dead);
		dead = next;
	}
}

static struct known **bucket_of(const struct ibv_qp *qp)
{
	return &by_address[((uintptr_t)qp >> 4) * 0x9e3779b97f4a7c15ull >> 52];
}

static struct known **bucket_named(uint32_t qpn)
{
	return &by_name[qpn % BUCKETS];
}

static void tell(struct known *known)
{
	if (!is_connected || known->is_untold || !(known->has_path || known->was_told))
		return;
	if (untold.later == &untold)
		atomic_store(&has_news, true);
	known->is_untold = true;
	known->later = &untold;
	known->earlier = untold.earlier;
	untold.earlier->later = known;
	untold.earlier = known;
}

static void untell(struct known *known)
{
	known->earlier->later = known->later;
	known->later->earlier = known->earlier;
	known->is_untold = false;
}

static void free_if_unused(struct known *known)
{
	if (!known->is_gone || known->calls || known->is_moving || known->is_untold)
		return;
	known->next_by_address = unused;
	unused = known;
}

/* What the agent has never heard of it need not hear the end of. */
static void drop(struct known *known)
{
	struct known **address = bucket_of(known->qp), **named = bucket_named(known->name.qpn);
	while (*address != known)
		address = &(*address)->next_by_address;
	*address = known->next_by_address;
	while (*named != known)
		named = &(*named)->next_by_name;
	*named = known->next_by_name;
	count_end(known->count_place);
	known->is_gone = true;
	known->name.state = CWDP_VERBS_GONE;
	if (known->was_told) {
		tell(known);
	} else {
		forgotten += known->has_path;
		if (known->is_untold)
			untell(known);
	}
	free_if_unused(known);
}

static void forget_untold(void)
{
	while (untold.later != &untold) {
		struct known *known = untold.later;
		untell(known);
		free_if_unused(known);
	}
}

/* After fork, what is left of the parent's queue pairs goes first. */
static void take_guard(void)
{
	pthread_mutex_lock(&guard);
	if (!is_inherited)
		return;
	is_inherited = is_any_moving = false;
	forget_untold();
	for (int i = 0; i < BUCKETS; i++)
		while (by_address[i]) {
			struct known *known = by_address[i];
			known->calls = 0;
			known->is_moving = known->was_told = false;
			drop(known);
		}
	forgotten = 0;
}

static struct known *find(const struct ibv_qp *qp)
{
	struct known *known = *bucket_of(qp);
	while (known && known->qp != qp)
		known = known->next_by_address;
	return known;
}

static struct known *find_named(const struct cwdp_verbs_head *name)
{
	struct known *known = *bucket_named(name->qpn);
	while (known && (known->name.qpn != name->qpn ||
			 strncmp(known->name.device, name->device, sizeof(name->device))))
		known = known->next_by_name;
	return known;
}

static struct known *make(struct ibv_qp *qp)
{
	struct known *known = calloc(1, sizeof(*known));
	if (!known)
		return NULL;
	const char *device = real_verbs()->get_device_name(qp->context->device);
	known->qp = qp;
	known->context = qp->context;
	known->mover = mover_of(qp->context);
	known->name =
		(struct cwdp_verbs_head){.magic = CWDP_VERBS_MAGIC, .qpn = qp->qp_num, .state = qp->state};
	if (device)
		strncpy(known->name.device, device, sizeof(known->name.device) - 1);
	return known;
}

/* Another of its address or its name has ended without a word. */
static void insert(struct known *known)
{
	struct known *before;
	while ((before = find(known->qp)) || (before = find_named(&known->name)))
		drop(before);
	struct known **address = bucket_of(known->qp), **named = bucket_named(known->name.qpn);
	known->next_by_address = *address;
	known->next_by_name = *named;
	*address = *named = known;
	bool is_connected_type = known->qp->qp_type == IBV_QPT_RC || known->qp->qp_type == IBV_QPT_UC;
	known->count_place = is_connected_type ? count_begin(known->qp) : CWDP_VERBS_UNCOUNTED;
}

static void await_move(struct known *known)
{
	int cancelable;
	if (!known->is_moving)
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	while (known->is_moving)
		pthread_cond_wait(&move_ended, &guard);
	pthread_setcancelstate(cancelable, NULL);
}

static bool is_same(const struct known *known, const struct ibv_qp *qp)
{
	return known && known->name.qpn == qp->qp_num && known->context == qp->context;
}

struct known *known_enter_new(struct ibv_qp *qp)
{
	struct known *known = make(qp);
	if (!known)
		return NULL;
	known->calls = 1;
	take_guard();
	insert(known);
	let_go();
	return known;
}

struct known *known_enter(struct ibv_qp *qp)
{
	take_guard();
	struct known *known = find(qp);
	if (is_same(known, qp)) {
		known->calls++;
		await_move(known);
		let_go();
		return known;
	}
	let_go();
	return known_enter_new(qp);
}

void known_leave(struct known *known)
{
	take_guard();
	known->calls--;
	free_if_unused(known);
	let_go();
}

void known_changed(struct known *known, const struct ibv_qp_attr *attr, int mask, const struct taken *taken)
{
	take_guard();
	if (mask & IBV_QP_DEST_QPN)
		known->dest_qpn = attr->dest_qp_num;
	if (mask & IBV_QP_AV) {
		known->path = taken->path;
		known->by_table = taken->by_table;
		known->lid = taken->lid;
		known->has_path = known->is_path_untold = true;
	}
	if (mask & IBV_QP_ALT_PATH)
		known->has_own_alternate = true;
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET) {
		known->has_path = known->has_own_alternate = false;
		known->loaded_dlid = 0;
	}
	if (mask & IBV_QP_STATE && !known->is_gone)
		known->name.state = attr->qp_state;
	if (mask & (IBV_QP_STATE | IBV_QP_AV) && !known->is_gone)
		tell(known);
	pthread_mutex_unlock(&guard);
}

void known_went(struct known *known, const struct ibv_ah_attr *now)
{
	take_guard();
	known->path.dlid = now->dlid;
	known->path.src_path_bits = now->src_path_bits;
	known->loaded_dlid = 0;
	known->is_path_untold = true;
	if (!known->is_gone)
		tell(known);
	pthread_mutex_unlock(&guard);
}

void known_gone(struct known *known)
{
	take_guard();
	if (!known->is_gone)
		drop(known);
	let_go();
}

static struct known *first_of(const struct ibv_context *context, int bucket)
{
	struct known *known = by_address[bucket];
	while (known && known->context != context)
		known = known->next_by_address;
	return known;
}

void known_close(struct ibv_context *context)
{
	struct known *known;
	take_guard();
	for (int i = 0; i < BUCKETS; i++)
		while ((known = first_of(context, i))) {
			known->calls++;
			await_move(known);
			known->calls--;
			if (known->is_gone)
				free_if_unused(known);
			else
				drop(known);
		}
	let_go();
}

int known_begin_move(const struct cwdp_verbs_head *name, struct known **taken)
{
	take_guard();
	struct known *known = is_ending ? NULL : find_named(name);
	int failed = !known ? ENOENT : known->calls ? EBUSY : 0;
	if (!failed)
		known->is_moving = is_any_moving = true;
	pthread_mutex_unlock(&guard);
	*taken = known;
	return failed;
}

bool known_is_called(struct known *known)
{
	take_guard();
	bool is_called = known->calls || is_ending;
	pthread_mutex_unlock(&guard);
	return is_called;
}

void known_end_move(struct known *known, const struct ibv_ah_attr *path)
{
	take_guard();
	if (path)
		known->path = *path;
	known->is_moving = is_any_moving = false;
	pthread_cond_broadcast(&move_ended);
	free_if_unused(known);
	let_go();
}

/* The libraries that moves call are taken down after this one. A program that exits in a handler of a signal
 * may hold the guard itself, so it is not waited for long.
 */
__attribute__((destructor)) static void end(void)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec++;
	if (pthread_mutex_timedlock(&guard, &until))
		return;
	is_ending = true;
	while (is_any_moving && !is_inherited)
		pthread_cond_wait(&move_ended, &guard);
	pthread_mutex_unlock(&guard);
}

static struct cwdp_verbs_qp described(const struct known *known)
{
	bool with_path = known->has_path && known->is_path_untold && !known->is_gone;
	struct cwdp_verbs_qp told = {
		.head = known->name,
		.port = known->path.port_num,
		.gid_index = known->path.grh.sgid_index,
		.dest_qpn = known->dest_qpn,
		.flow_label = known->path.grh.flow_label,
		.by_table = known->by_table,
		.actuator = mover_actuator(&known->mover, known->lid),
		.count_place = known->count_place,
		.lid = known->lid,
		.dlid = known->lid ? known->path.dlid : 0,
		.src_path_bits = known->lid ? known->path.src_path_bits : 0,
	};
	told.head.kind = with_path ? CWDP_VERBS_QP_RTR : CWDP_VERBS_QP_STATE;
	memcpy(told.dst, known->path.grh.dgid.raw, sizeof(told.dst));
	return told;
}

bool known_next_untold(struct cwdp_verbs_qp *told)
{
	take_guard();
	struct known *known = untold.later;
	bool is_one = known != &untold;
	if (is_one) {
		*told = described(known);
		known->was_told = true;
		known->is_path_untold = false;
		untell(known);
		free_if_unused(known);
	}
	let_go();
	return is_one;
}

bool known_has_news(void)
{
	return atomic_load_explicit(&has_news, memory_order_relaxed) && atomic_exchange(&has_news, false);
}

void known_connected(bool connected)
{
	take_guard();
	is_connected = connected;
	forget_untold();
	for (int i = 0; i < BUCKETS; i++)
		for (struct known *known = by_address[i]; known; known = known->next_by_address) {
			known->was_told = false;
			known->is_path_untold = true;
			tell(known);
		}
	let_go();
}

uint64_t known_forgotten(void)
{
	take_guard();
	uint64_t count = forgotten;
	pthread_mutex_unlock(&guard);
	return count;
}

void known_after_fork(void)
{
	pthread_cond_init(&move_ended, NULL);
	is_inherited = true;
	is_connected = false;
}
