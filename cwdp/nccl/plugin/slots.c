/* SPDX-License-Identifier: Apache-2.0 */
/* Those that are free are a stack, so that what is taken was used of late and is in the cache. Its top has a
 * number that grows with each change: a slot that was taken and given back meanwhile is no longer the same
 * top.
 */
#include "slots.h"

#include <sys/mman.h>

#define SLOTS       8192
#define NONE        UINT32_MAX
#define NUMBER_BITS 28
#define NUMBER_MASK ((1u << NUMBER_BITS) - 1)

static _Atomic(struct slot *) slots;
static _Atomic uint64_t top; /* changes << 32 | place */

static uint64_t changed(uint64_t from, uint32_t place)
{
	return ((from >> 32) + 1) << 32 | place;
}

bool slots_make(void)
{
	if (atomic_load(&slots))
		return true;
	struct slot *made = mmap(NULL, SLOTS * sizeof(*made), PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (made == MAP_FAILED)
		return false;
	for (uint32_t i = 0; i < SLOTS; i++)
		made[i].below = i + 1 < SLOTS ? i + 1 : NONE;
	atomic_store(&top, 0);
	atomic_store(&slots, made);
	return true;
}

void slots_forget(void)
{
	struct slot *had = atomic_exchange(&slots, NULL);
	if (had)
		munmap(had, SLOTS * sizeof(*had));
}

struct slot *slot_take(void)
{
	struct slot *all = atomic_load_explicit(&slots, memory_order_acquire);
	uint64_t was = atomic_load_explicit(&top, memory_order_acquire);
	while (all && (uint32_t)was != NONE) {
		struct slot *slot = &all[(uint32_t)was];
		uint32_t below = atomic_load_explicit(&slot->below, memory_order_relaxed);
		if (!atomic_compare_exchange_weak_explicit(&top, &was, changed(was, below),
							   memory_order_acquire, memory_order_acquire))
			continue;
		atomic_fetch_add_explicit(&slot->number, 1, memory_order_relaxed);
		return slot;
	}
	return NULL;
}

void slot_free(struct slot *slot)
{
	uint32_t place = (uint32_t)(slot - atomic_load_explicit(&slots, memory_order_relaxed));
	uint64_t was = atomic_load_explicit(&top, memory_order_relaxed);
	atomic_fetch_add_explicit(&slot->number, 1, memory_order_relaxed);
	do
		atomic_store_explicit(&slot->below, (uint32_t)was, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&top, &was, changed(was, place), memory_order_release,
						      memory_order_relaxed));
}

uint64_t slot_name(const struct slot *slot)
{
	uint64_t number = atomic_load_explicit(&slot->number, memory_order_relaxed) & NUMBER_MASK;
	return number << 32 | (uint64_t)(slot - atomic_load_explicit(&slots, memory_order_relaxed));
}

struct slot *slot_named(uint64_t name)
{
	struct slot *all = atomic_load_explicit(&slots, memory_order_acquire);
	uint32_t place = (uint32_t)name, number = (uint32_t)(name >> 32) & NUMBER_MASK;
	if (!all || place >= SLOTS || !(number & 1))
		return NULL;
	uint32_t is = atomic_load_explicit(&all[place].number, memory_order_relaxed);
	return (is & NUMBER_MASK) == number ? &all[place] : NULL;
}
