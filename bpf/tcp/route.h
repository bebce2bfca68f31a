/* SPDX-License-Identifier: GPL-2.0-only */
/* Which path a steered connection takes now.
 *
 * TCP bears segments out of order, so a connection leaves a path that is only late, and takes a backup that
 * is held down where its path is silent. What it left it goes back to once that has been alive for a while:
 * paths that are late in turns would have it swing between them. While neither path answers, as when the far
 * end stands still, it stays where answers came from last, and goes by its own ports once that has lasted.
 *
 * Where a queue is full, pulses are lost and late as if the path were dead. But then the far end still
 * acknowledges what arrives, and for as long as it does a connection stays on its path. */
#pragma once

#include "steering/failover.h"
#include "tcp/announce.h"

#define TCP_RETURN_FACTOR    4  /* times dead_after a path is alive before it is gone back to */
#define TCP_OWN_PORTS_FACTOR 10 /* times dead_after both are silent before own ports are taken */

enum tcp_route {
	TCP_PRIMARY,
	TCP_BACKUP,
	TCP_OWN_PORTS, /* neither is alive: as if nobody steered it */
};

/* Is an answer later than answers were of late? */
static __always_inline bool is_late(const struct cwdp_path *path, const struct cwdp_path *backup, __u64 now)
{
	__u64 slow_ns = path->slow_ns > backup->slow_ns ? path->slow_ns : backup->slow_ns;

	return (__s64)(now - path->waiting_since_ns) > (__s64)(SLOW_FACTOR * slow_ns);
}

/* Does what leaves by the path still arrive, though its pulses go unanswered? Anybody can say so who knows
 * the connection's ports, so it is believed for a while only. */
static __always_inline bool still_arrives(const struct cwdp_tcp_conn *conn, const struct cwdp_path *path,
					  __u64 now, __u64 dead_after_ns)
{
	return conn->route == TCP_PRIMARY && conn->acked_ns &&
	       (__s64)(now - conn->acked_ns) < (__s64)(dead_after_ns / 2) &&
	       !is_silent(path, now, TCP_OWN_PORTS_FACTOR * dead_after_ns);
}

/* Where answers came from last, by more than it takes to notice a silence; else the present route. */
static __always_inline __u32 last_heard(const struct cwdp_path *path, const struct cwdp_path *backup,
					__u32 route, __u64 dead_after_ns)
{
	__s64 backup_later_ns = backup->last_answer_ns - path->last_answer_ns;

	if (route == TCP_OWN_PORTS)
		return route;
	if (backup_later_ns > (__s64)dead_after_ns)
		return TCP_BACKUP;
	return backup_later_ns < -(__s64)dead_after_ns ? TCP_PRIMARY : route;
}

/* The route by what pulses say, of a connection with a backup. */
static __always_inline __u32 tcp_asked_route(const struct cwdp_control *settings,
					     const struct cwdp_tcp_conn *conn, const struct cwdp_path *path,
					     const struct cwdp_path *backup, __u64 now)
{
	__u64 dead_after_ns = settings->dead_after_ns, given_up_ns = TCP_OWN_PORTS_FACTOR * dead_after_ns;

	if (is_silent(path, now, dead_after_ns)) {
		if (is_silent(path, now, given_up_ns) && is_silent(backup, now, given_up_ns))
			return TCP_OWN_PORTS;
		if (is_silent(backup, now, dead_after_ns))
			return last_heard(path, backup, conn->route, dead_after_ns);
		if (backup->state == CWDP_PATH_DOWN &&
		    backup->answered_sent_ns >= path->waiting_since_ns + dead_after_ns / 2)
			return TCP_BACKUP;
	}
	if (take_backup(settings, conn->path, conn->backup_path) ||
	    (is_behind(path, backup) && is_late(path, backup, now)))
		return TCP_BACKUP;
	return TCP_PRIMARY;
}

/* Take the route asked for, unless what it leads to was left a short while ago and the present one is not
 * silent. */
static __always_inline __u32 settle(struct cwdp_tcp_conn *conn, __u32 asked, bool is_route_silent, __u64 now,
				    __u64 hold_ns)
{
	__u32 route = conn->route;

	if (asked != route) {
		if (!is_route_silent && (__s64)(now - conn->left_ns) < (__s64)hold_ns)
			return route;
		conn->left_ns = asked == TCP_PRIMARY && !is_route_silent ? 0 : now;
		conn->route = asked;
	} else if (route != TCP_PRIMARY) {
		conn->left_ns = now;
	}
	return asked;
}

/* The route of a connection that is not on its path, or whose path's pulses go unanswered, or is down. */
__noinline int tcp_choose_route(const struct cwdp_control *settings, struct cwdp_tcp_conn *conn)
{
	struct cwdp_path *path, *backup, *used;
	__u64 now, dead_after_ns;
	bool has_backup;
	__u32 asked;

	if (!settings || !conn)
		return TCP_PRIMARY;
	path = find_path(conn->path);
	backup = find_path(conn->backup_path);
	has_backup = conn->flags & CWDP_STEER_BACKUP && backup;
	if (!path)
		return TCP_PRIMARY;
	now = clock_local_ns();
	dead_after_ns = settings->dead_after_ns;
	if (still_arrives(conn, path, now, dead_after_ns))
		asked = TCP_PRIMARY;
	else if (has_backup)
		asked = tcp_asked_route(settings, conn, path, backup, now);
	else
		asked = is_silent(path, now, dead_after_ns) ? TCP_OWN_PORTS : TCP_PRIMARY;
	used = has_backup && conn->route == TCP_BACKUP ? backup : path;
	return settle(conn, asked, conn->route != TCP_OWN_PORTS && is_silent(used, now, dead_after_ns), now,
		      TCP_RETURN_FACTOR * dead_after_ns);
}

/* Ingress: the far end acknowledges something new, or says again what it has, which shows that something
 * came. Once a jiffy is enough while pulses are answered: a clock read costs more than all else. */
static __always_inline void tcp_acked(__u32 number, const struct tcp_header *tcp, bool has_payload)
{
	struct cwdp_tcp_conn *conn = find_connection(number);
	__u16 tick = bpf_jiffies64();
	struct cwdp_path *path;

	if (!conn || conn->key.local_port != tcp->dport || conn->key.remote_port != tcp->sport)
		return;
	path = find_path(conn->path);
	if (!path ||
	    (path->state == CWDP_PATH_UP && path->unanswered < BEHIND_MIN && conn->acked_tick == tick) ||
	    (has_payload && conn->acked == tcp->ack))
		return;
	conn->acked = tcp->ack;
	conn->acked_tick = tick;
	conn->acked_ns = clock_local_ns();
}

/* One that is not on its path is looked at once a jiffy: that costs more than all else of a segment. */
static __always_inline __u32 tcp_route(const struct cwdp_control *settings, struct cwdp_tcp_conn *conn)
{
	const struct cwdp_path *path;
	__u16 tick;

	if (conn->route == TCP_PRIMARY) {
		path = find_path(conn->path);
		if (!path || (path->state == CWDP_PATH_UP && path->unanswered < BEHIND_MIN))
			return TCP_PRIMARY;
		return tcp_choose_route(settings, conn);
	}
	tick = bpf_jiffies64();
	if (conn->tick == tick)
		return conn->route;
	conn->tick = tick;
	return tcp_choose_route(settings, conn);
}
