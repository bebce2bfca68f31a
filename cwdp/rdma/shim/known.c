/* SPDX-License-Identifier: Apache-2.0 */
#include "known.h"

#include "guard.h"
#include "real.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS     4096
#define MOST_UNTOLD 16384

pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static struct known *buckets[BUCKETS], *by_name[BUCKETS];
static struct known *first_untold, **last_untold = &first_untold;
static uint32_t gone_untold;
static uint64_t forgotten;
static bool is_connected;

static struct known **bucket_of(const struct ibv_qp *qp)
{
	return &buckets[((uintptr_t)qp >> 4) * 0x9e3779b97f4a7c15ull >> 52];
}

static struct known **bucket_named(uint32_t qpn)
{
	return &by_name[qpn % BUCKETS];
}

static void tell(struct known *known)
{
	if (known->is_untold)
		return;
	known->is_untold = true;
	known->next_untold = NULL;
	known->users++;
	*last_untold = known;
	last_untold = &known->next_untold;
}

static void leave(struct known *known)
{
	if (--known->users)
		return;
	pthread_mutex_destroy(&known->busy);
	free(known);
}

static struct known *make(struct ibv_qp *qp)
{
	struct known *known = calloc(1, sizeof(*known));
	if (!known)
		return NULL;
	const char *device = real_verbs()->get_device_name(qp->context->device);
	*known = (struct known){
		.qp = qp,
		.users = 1,
		.name = {.magic = CWDP_VERBS_MAGIC, .qpn = qp->qp_num, .state = qp->state},
	};
	if (device)
		strncpy(known->name.device, device, sizeof(known->name.device) - 1);
	pthread_mutex_init(&known->busy, NULL);
	struct known **bucket = bucket_of(qp), **named = bucket_named(qp->qp_num);
	known->next = *bucket;
	known->next_by_name = *named;
	*bucket = *named = known;
	return known;
}

static void unlink_known(struct known *known)
{
	struct known **link = bucket_of(known->qp), **named = bucket_named(known->name.qpn);
	while (*link != known)
		link = &(*link)->next;
	*link = known->next;
	while (*named != known)
		named = &(*named)->next_by_name;
	*named = known->next_by_name;
	known->is_gone = true;
	known->name.state = CWDP_VERBS_GONE;
}

/* One that is known by this address and has another number ended without a word. */
static struct known *find(struct ibv_qp *qp)
{
	struct known *known = *bucket_of(qp);
	while (known && known->qp != qp)
		known = known->next;
	if (known && known->name.qpn != qp->qp_num) {
		unlink_known(known);
		leave(known);
		known = NULL;
	}
	return known;
}

/* With the guard held, which is let go while waiting. NULL where it was destroyed meanwhile. */
static struct known *hold(struct known *known)
{
	known->users++;
	pthread_mutex_unlock(&guard);
	pthread_mutex_lock(&known->busy);
	if (!known->is_gone)
		return known;
	known_release(known);
	return NULL;
}

struct known *known_hold(struct ibv_qp *qp)
{
	pthread_mutex_lock(&guard);
	struct known *known = find(qp);
	if (!known)
		known = make(qp);
	if (!known) {
		pthread_mutex_unlock(&guard);
		return NULL;
	}
	atomic_fetch_add(&known->waiting, 1);
	struct known *held = hold(known);
	if (held)
		atomic_fetch_sub(&held->waiting, 1);
	return held;
}

static bool is_named(const struct known *known, const struct cwdp_verbs_head *name)
{
	return known->name.qpn == name->qpn &&
	       !strncmp(known->name.device, name->device, sizeof(name->device));
}

struct known *known_hold_named(const struct cwdp_verbs_head *name)
{
	pthread_mutex_lock(&guard);
	struct known *known = *bucket_named(name->qpn);
	while (known && !is_named(known, name))
		known = known->next_by_name;
	if (known)
		return hold(known);
	pthread_mutex_unlock(&guard);
	return NULL;
}

void known_release(struct known *known)
{
	pthread_mutex_unlock(&known->busy);
	pthread_mutex_lock(&guard);
	leave(known);
	pthread_mutex_unlock(&guard);
}

void known_state(struct known *known, enum ibv_qp_state state)
{
	pthread_mutex_lock(&guard);
	if (known->name.state != state) {
		known->name.state = state;
		tell(known);
	}
	pthread_mutex_unlock(&guard);
}

void known_path(struct known *known, const struct ibv_ah_attr *path, uint32_t dest_qpn, bool by_table)
{
	pthread_mutex_lock(&guard);
	known->path = *path;
	known->dest_qpn = dest_qpn;
	known->has_path = true;
	known->by_table = by_table;
	tell(known);
	pthread_mutex_unlock(&guard);
}

void known_label(struct known *known, uint32_t flow_label)
{
	pthread_mutex_lock(&guard);
	known->path.grh.flow_label = flow_label;
	tell(known);
	pthread_mutex_unlock(&guard);
}

void known_gone(struct known *known)
{
	pthread_mutex_lock(&guard);
	unlink_known(known);
	if (is_connected && (known->is_untold || gone_untold < MOST_UNTOLD)) {
		gone_untold++;
		tell(known);
	} else {
		forgotten += is_connected;
	}
	leave(known);
	pthread_mutex_unlock(&guard);
}

bool known_next_untold(struct cwdp_verbs_qp *told, bool *has_path)
{
	pthread_mutex_lock(&guard);
	struct known *known = first_untold;
	if (known) {
		first_untold = known->next_untold;
		if (!first_untold)
			last_untold = &first_untold;
		known->is_untold = false;
		gone_untold -= known->is_gone && gone_untold;
		*told = (struct cwdp_verbs_qp){
			.head = known->name,
			.port = known->path.port_num,
			.gid_index = known->path.grh.sgid_index,
			.dest_qpn = known->dest_qpn,
			.flow_label = known->path.grh.flow_label,
			.by_table = known->by_table,
			.actuator = known->actuator,
		};
		memcpy(told->dst, known->path.grh.dgid.raw, sizeof(told->dst));
		*has_path = known->has_path && !known->is_gone;
		leave(known);
	}
	pthread_mutex_unlock(&guard);
	return known != NULL;
}

void known_connected(bool connected)
{
	pthread_mutex_lock(&guard);
	is_connected = connected;
	while (first_untold) {
		struct known *known = first_untold;
		first_untold = known->next_untold;
		known->is_untold = false;
		leave(known);
	}
	last_untold = &first_untold;
	gone_untold = 0;
	for (int i = 0; connected && i < BUCKETS; i++)
		for (struct known *known = buckets[i]; known; known = known->next)
			tell(known);
	pthread_mutex_unlock(&guard);
}

uint64_t known_forgotten(void)
{
	pthread_mutex_lock(&guard);
	uint64_t count = forgotten;
	pthread_mutex_unlock(&guard);
	return count;
}

void known_clear(void)
{
	memset(buckets, 0, sizeof(buckets));
	memset(by_name, 0, sizeof(by_name));
	first_untold = NULL;
	last_untold = &first_untold;
	gone_untold = 0;
	forgotten = 0;
	is_connected = false;
}
