/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include "guard.h"
#include "wire.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEALS     (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define COUNTERS  1024
#define GOLDEN_32 0x9e3779b9u

struct mapped {
	const struct cwdp_verbs_table *table;
	size_t bytes;
};

static struct mapped held;

/* How many queue pairs took each route; routes that share a counter are spread all the same. */
static _Atomic uint32_t taken[COUNTERS];

static const struct cwdp_verbs_source *sources_of(const struct cwdp_verbs_table *table)
{
	return (const struct cwdp_verbs_source *)(table + 1);
}

static const struct cwdp_verbs_route *routes_of(const struct cwdp_verbs_table *table)
{
	return (const struct cwdp_verbs_route *)(sources_of(table) + table->sources);
}

static bool is_whole(const struct mapped *mapped)
{
	const struct cwdp_verbs_table *table = mapped->table;
	if (table->magic != CWDP_VERBS_MAGIC || table->version != CWDP_VERBS_VERSION ||
	    table->route_bits > CWDP_VERBS_MOST_BITS || table->sources > CWDP_VERBS_MOST_SOURCES)
		return false;
	uint64_t bytes = sizeof(*table) + (uint64_t)table->sources * sizeof(struct cwdp_verbs_source);
	bytes += ((uint64_t)1 << table->route_bits) * sizeof(struct cwdp_verbs_route);
	return bytes <= mapped->bytes;
}

bool table_take(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS) != SEALS)
		return false;
	off_t bytes = lseek(fd, 0, SEEK_END);
	if (bytes < (off_t)sizeof(struct cwdp_verbs_table) || bytes > CWDP_VERBS_MOST_BYTES)
		return false;
	struct mapped fresh = {.bytes = (size_t)bytes};
	void *at = mmap(NULL, fresh.bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return false;
	fresh.table = at;
	if (!is_whole(&fresh)) {
		munmap(at, fresh.bytes);
		return false;
	}
	pthread_mutex_lock(&guard);
	struct mapped before = held;
	held = fresh;
	pthread_mutex_unlock(&guard);
	if (before.table)
		munmap((void *)before.table, before.bytes);
	return true;
}

static const uint8_t *source_gid(const struct cwdp_verbs_table *table, const char *device, uint32_t port,
				 uint32_t gid_index)
{
	const struct cwdp_verbs_source *source = sources_of(table);
	for (uint32_t i = 0; i < table->sources; i++, source++)
		if (source->port == port && source->gid_index == gid_index &&
		    !strncmp(source->device, device, sizeof(source->device)))
			return source->gid;
	return NULL;
}

/* FNV-1a over both GIDs. */
static uint32_t hash_of(const uint8_t src[16], const uint8_t dst[16])
{
	uint32_t hash = 2166136261u;
	for (int i = 0; i < 32; i++)
		hash = (hash ^ (i < 16 ? src[i] : dst[i - 16])) * 16777619u;
	return hash;
}

static const struct cwdp_verbs_route *find(const struct cwdp_verbs_table *table, const uint8_t src[16],
					   const uint8_t dst[16], uint32_t hash)
{
	uint32_t last = (1u << table->route_bits) - 1;
	for (uint32_t step = 0; step < CWDP_VERBS_STEPS; step++) {
		const struct cwdp_verbs_route *route = routes_of(table) + ((hash + step) & last);
		if (!route->used)
			return NULL;
		if (!memcmp(route->src, src, 16) && !memcmp(route->dst, dst, 16))
			return route;
	}
	return NULL;
}

/* A point among all shares for the next queue pair of a route. A round is as many queue pairs as there are
 * choices, and each has a point in another of as many equal parts: equal shares are taken one after the
 * other. From round to round both the first part and the points within parts go on by steps of the golden
 * ratio, so that other shares are kept too. Each process begins elsewhere, and each route, so that processes
 * of the same number in many containers do.
 */
static uint32_t draw(uint32_t hash, uint32_t choices)
{
	uint32_t turn = atomic_fetch_add_explicit(&taken[hash % COUNTERS], 1, memory_order_relaxed);
	uint32_t round = turn / choices;
	uint32_t begins = (round + hash + (uint32_t)getpid() * 7919u) * GOLDEN_32;
	uint64_t part = (((uint64_t)begins * choices >> 32) + turn % choices) % choices;
	uint32_t within = (1u << 31) + round * GOLDEN_32;
	return (uint32_t)((part << 32 | within) / choices);
}

static uint32_t choices_of(const struct cwdp_verbs_route *route)
{
	return route->choices <= CWDP_VERBS_CHOICES ? route->choices : 0;
}

static uint32_t chosen(const struct cwdp_verbs_route *route, uint32_t point)
{
	for (uint32_t i = 0; i < choices_of(route); i++)
		if (point <= route->up_to[i])
			return route->path[i];
	return 0;
}

uint32_t table_flow_label(const char *device, uint32_t port, uint32_t gid_index, const uint8_t dst[16])
{
	uint32_t label = 0;
	pthread_mutex_lock(&guard);
	const uint8_t *src = held.table ? source_gid(held.table, device, port, gid_index) : NULL;
	if (src) {
		uint32_t hash = hash_of(src, dst);
		const struct cwdp_verbs_route *route = find(held.table, src, dst, hash);
		uint32_t choices = route ? choices_of(route) : 0;
		label = choices ? chosen(route, choices > 1 ? draw(hash, choices) : 0) & 0xfffff : 0;
	}
	pthread_mutex_unlock(&guard);
	return label;
}

uint16_t table_dlid(uint16_t lid, uint16_t dst_lid, uint32_t point, uint32_t *lmc)
{
	const uint8_t src[16] = {[14] = lid >> 8, [15] = lid & 0xff};
	const uint8_t dst[16] = {[14] = dst_lid >> 8, [15] = dst_lid & 0xff};
	uint32_t dlid = 0;
	pthread_mutex_lock(&guard);
	const struct cwdp_verbs_route *route =
		held.table ? find(held.table, src, dst, hash_of(src, dst)) : NULL;
	if (route) {
		dlid = chosen(route, point);
		*lmc = route->lmc;
	}
	pthread_mutex_unlock(&guard);
	return dlid <= UINT16_MAX ? (uint16_t)dlid : 0;
}
