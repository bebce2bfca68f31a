/* SPDX-License-Identifier: GPL-2.0-only */
/* Which path a steered queue pair takes now.
 *
 * The agent sends pulses over every path in use and every backup. A path is silent from the time the first
 * pulse left that followed its last answer: late answers, as long as they keep coming, are no silence, and a
 * host that sends no pulses hears no silence. A path is given up when it has been silent for dead_after and
 * its backup has answered a pulse sent well within that silence; so what stalls both, a busy CPU or a dead
 * NIC, moves nothing. A burst delays both paths, but never equally, so the path has twice as long again as
 * the backup's answers took of late. Only pulses bring it back: healthy for hold_ns, which doubles with each
 * relapse. Paths that share links take turns at being asked (cwdp.agent.liveness.plan): what was lost before
 * a pause is no part of a silence. */
#pragma once

#include "clock.h"
#include "maps.h"

#define UNANSWERED_MIN     4
#define BEHIND_MIN         2
#define SLOW_FACTOR        2 /* what delays the backup is no death of the path: it has so much longer */
#define SLOW_SHIFT         4
#define SLOW_SPAN_SHIFT    24
#define SLOWEST_SPAN_SHIFT 30

static __always_inline struct cwdp_path *find_path(__u32 index)
{
	return index ? bpf_map_lookup_elem(&paths, &index) : NULL;
}

static __always_inline bool is_silent(const struct cwdp_path *path, __u64 now, __u64 dead_after_ns)
{
	__u64 since = path->waiting_since_ns;

	return path->unanswered >= UNANSWERED_MIN && since > path->last_answer_ns &&
	       (__s64)(now - since) > (__s64)dead_after_ns;
}

__noinline int path_event(const struct cwdp_path *path, __u32 number, __u32 kind, __u64 now)
{
	struct cwdp_control *settings = find_control();
	struct clock_reading reading;
	struct cwdp_event *event;
	__u32 index;
	__u64 head;

	if (!settings || !path)
		return 0;
	head = __sync_fetch_and_add(&settings->event_head, 1) + 1;
	index = head & (CWDP_EVENTS - 1);
	event = bpf_map_lookup_elem(&events, &index);
	if (!event)
		return 0;
	reading = clock_read_line(now);
	WRITE_ONCE(event->number, 0);
	event->local_ns = now;
	event->offset_ns = reading.offset_ns;
	event->bound_ns = reading.bound_ns;
	event->kind = kind;
	event->path = number;
	event->lasted_ns =
		now - (kind == CWDP_EVENT_PATH_DOWN ? path->waiting_since_ns : path->healthy_since_ns);
	event->hold_ns = path->hold_ns;
	event->unanswered = path->unanswered;
	__sync_lock_test_and_set(&event->number, head);
	return 0;
}

/* Doubles with each relapse, until the path has been up for as long as the ceiling. */
static __always_inline __u64 next_hold_ns(const struct cwdp_path *path, const struct cwdp_control *settings,
					  __u64 now)
{
	__u64 hold_ns = path->hold_ns * 2;

	if (!path->hold_ns || now - path->changed_ns > settings->hold_down_max_ns)
		return settings->hold_down_ns;
	return hold_ns < settings->hold_down_max_ns ? hold_ns : settings->hold_down_max_ns;
}

__noinline int path_down(const struct cwdp_control *settings, struct cwdp_path *path, __u32 number, __u64 now)
{
	if (!settings || !path ||
	    __sync_val_compare_and_swap(&path->state, CWDP_PATH_UP, CWDP_PATH_DOWN) != CWDP_PATH_UP)
		return 0;
	path->hold_ns = next_hold_ns(path, settings, now);
	path->healthy_since_ns = 0;
	path->changed_ns = now;
	path->flaps++;
	count(CWDP_PATH_WENT_DOWN);
	path_event(path, number, CWDP_EVENT_PATH_DOWN, now);
	return 0;
}

/* A path whose pulses go unanswered, or which is down: is its backup the better one? */
__noinline int take_backup(const struct cwdp_control *settings, __u32 number, __u32 backup_number)
{
	struct cwdp_path *path, *backup;
	__u64 now, dead_after_ns;

	if (!settings)
		return false;
	path = find_path(number);
	backup = find_path(backup_number);
	if (!path || !backup)
		return false;
	now = clock_local_ns();
	dead_after_ns = settings->dead_after_ns;
	if (path->state == CWDP_PATH_DOWN)
		return !is_silent(backup, now, dead_after_ns) || is_silent(path, now, dead_after_ns);
	dead_after_ns += SLOW_FACTOR * backup->slow_ns;
	if (!is_silent(path, now, dead_after_ns) || backup->state == CWDP_PATH_DOWN ||
	    backup->answered_sent_ns < path->waiting_since_ns + dead_after_ns / 2)
		return false;
	path_down(settings, path, number, now);
	return true;
}

/* May a path be dead that is not given up yet, and its backup rather not? It is asked seldom before something
 * is amiss, so all that is known of it for some milliseconds may be that it lacks no answer. */
static __always_inline bool is_behind(const struct cwdp_path *path, const struct cwdp_path *backup)
{
	return path && backup && path->unanswered >= BEHIND_MIN && backup->state == CWDP_PATH_UP &&
	       backup->unanswered < path->unanswered;
}

/* Egress: a pulse leaves, over any path; after a pause of all of them? */
static __always_inline void note_pulse(struct cwdp_control *settings, __u64 now)
{
	__u64 paused_ns = now - settings->asked_ns;

	if (settings->pulse_gap_ns && paused_ns > settings->pulse_gap_ns) {
		settings->resumed_ns = now;
		settings->paused_ns = paused_ns;
	}
	WRITE_ONCE(settings->asked_ns, now);
}

/* When a silence began that a pulse is part of. A path that is asked in turn with many may have lost a pulse
 * a long time ago: it has not been silent since. Where no pulse left at all meanwhile, since the agent had no
 * processor, that time counts as one gap. One that is known to be silent stays so. */
static __always_inline __u64 silent_since(const struct cwdp_control *settings, struct cwdp_path *path,
					  __u64 now)
{
	__u64 unasked_ns = now - path->asked_ns, paused_ns = 0;

	if (path->waiting_since_ns <= path->last_answer_ns)
		return now;
	if (!settings || !settings->pulse_gap_ns || unasked_ns <= settings->pulse_gap_ns ||
	    is_silent(path, now, settings->dead_after_ns))
		return path->waiting_since_ns;
	if ((__s64)(settings->resumed_ns - path->asked_ns) > 0)
		paused_ns = settings->paused_ns;
	if ((__s64)(unasked_ns - paused_ns) <= (__s64)settings->pulse_gap_ns)
		return path->waiting_since_ns + unasked_ns - settings->pulse_gap_ns;
	path->unanswered = 0;
	return now;
}

/* Egress: a pulse leaves. */
static __always_inline void pulse_sent(struct cwdp_path *path, __u64 now)
{
	struct cwdp_control *settings = find_control();

	if (settings)
		note_pulse(settings, now);
	path->waiting_since_ns = silent_since(settings, path, now);
	path->asked_ns = now;
	__sync_fetch_and_add(&path->unanswered, 1);
}

/* The longest that answers took, forgotten by a 16th with each span. */
static __always_inline __u64 next_longest_ns(__u64 longest_ns, __u64 took_ns, __u64 spans)
{
	longest_ns = spans < 1 << SLOW_SHIFT ? longest_ns - (longest_ns >> SLOW_SHIFT) * spans : 0;
	return took_ns > longest_ns ? took_ns : longest_ns;
}

/* How long answers took of late, where a span is an answer, or 17 ms where they come more rarely; and in the
 * last seconds, where it is a second. */
static __always_inline void pulse_took(struct cwdp_path *path, __u64 took_ns, __u64 now)
{
	__u64 spans = (now - path->last_answer_ns) >> SLOW_SPAN_SHIFT;

	path->slow_ns = next_longest_ns(path->slow_ns, took_ns, spans ? spans : 1);
	spans = (now >> SLOWEST_SPAN_SHIFT) - (path->last_answer_ns >> SLOWEST_SPAN_SHIFT);
	path->slowest_ns = next_longest_ns(path->slowest_ns, took_ns, spans);
}

/* Ingress: a pulse that left at sent_ns has been answered. */
static __always_inline void pulse_answered(__u32 number, __u64 sent_ns, __u64 now)
{
	struct cwdp_control *settings = find_control();
	struct cwdp_path *path = find_path(number);
	bool was_silent;

	if (!path || !settings)
		return;
	was_silent = is_silent(path, now, settings->dead_after_ns);
	pulse_took(path, now - sent_ns, now);
	path->last_answer_ns = now;
	path->answered_sent_ns = sent_ns;
	path->unanswered = 0;
	if (path->state == CWDP_PATH_UP)
		return;
	if (was_silent || !path->healthy_since_ns) {
		path->healthy_since_ns = now;
		return;
	}
	if (now - path->healthy_since_ns < path->hold_ns ||
	    __sync_val_compare_and_swap(&path->state, CWDP_PATH_DOWN, CWDP_PATH_UP) != CWDP_PATH_DOWN)
		return;
	path->changed_ns = now;
	count(CWDP_PATH_CAME_UP);
	path_event(path, number, CWDP_EVENT_PATH_UP, now);
}
