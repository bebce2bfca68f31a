/* SPDX-License-Identifier: GPL-2.0-only */
/* The timers of steered connections' sockets, set by an iterator over all sockets of a network namespace.
 *
 * A connection leaves a dead path within milliseconds, but what was lost last is noticed by nobody: its
 * sender waits for its retransmission timer, which Linux lets be no shorter than 200 ms, as the far end may
 * hold an acknowledgement back for as long. Where the far end is known to hold it back for less, so can this:
 * 20 ms, and what queues may delay: twice what round trips say of late, as a queue grows within one, or the
 * longest that pulses took in the last seconds. A timer that runs out before the acknowledgement comes has
 * data sent again that nobody lost.
 *
 * The variation of round trips, which the kernel adds to their mean, falls to this least one and is never
 * raised to it; only what is above it raises the variation. So a least one above the variation would keep the
 * timer short where round trips grow, and is not set. */
#pragma once

#include "tcp/announce.h"
#include "tcp/route.h"

#define SOL_TCP            6 /* of <netinet/tcp.h> and <linux/bpf.h> */
#define BPF_TCP_DELACK_MAX 1003
#define BPF_TCP_RTO_MIN    1004
#define SOCKET_IPV4        2
#define SOCKET_IPV6        10
#define LINUX_RTO_MIN_US   200000
#define RTO_MIN_MAX_NS     (CWDP_TCP_RTO_MIN_MAX_US * 1000ULL)
#define QUEUE_FACTOR       2 /* a queue may be this much longer after a round trip */
#define QUEUE_FORGOTTEN    4 /* a part of this many is forgotten with each look */

/* The kernel's own, as far as it is looked at. */
struct sock_common {
	unsigned short skc_family;
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} __attribute__((preserve_access_index));

struct minmax_sample {
	__u32 v;
} __attribute__((preserve_access_index));

struct minmax {
	struct minmax_sample s[3];
} __attribute__((preserve_access_index));

struct tcp_sock {
	__u32 srtt_us; /* times 8 */
	__u32 mdev_us; /* times 4 */
	__u32 rttvar_us;
	struct minmax rtt_min;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

static __always_inline void describe_socket(struct sock_common *sock, struct cwdp_tcp_key *key)
{
	key->local_port = bpf_htons(sock->skc_num);
	key->remote_port = sock->skc_dport;
	if (sock->skc_family == SOCKET_IPV4) {
		map_ipv4(key->local_addr, sock->skc_rcv_saddr);
		map_ipv4(key->remote_addr, sock->skc_daddr);
		return;
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		key->local_addr[i] = sock->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
		key->remote_addr[i] = sock->skc_v6_daddr.in6_u.u6_addr32[i];
	}
}

/* Has the far end announced that it steers its direction? */
static __always_inline bool is_announced(const struct cwdp_tcp_key *key)
{
	struct cwdp_tcp_wire_key wire = {.port_sum = fold((__u32)key->local_port + key->remote_port)};
	struct cwdp_tcp_ports *ports;

	__builtin_memcpy(wire.from_addr, key->remote_addr, sizeof(wire.from_addr));
	__builtin_memcpy(wire.to_addr, key->local_addr, sizeof(wire.to_addr));
	ports = bpf_map_lookup_elem(&tcp_in, &wire);
	return ports && ports->from_port == key->remote_port && ports->to_port == key->local_port;
}

static __always_inline __u32 less(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

static __always_inline __u32 greater(__u32 a, __u32 b)
{
	return a > b ? a : b;
}

/* How long queues delay a round trip: above the least of late, or by how much it varies. */
static __always_inline __u32 socket_queued_us(const struct tcp_sock *tcp)
{
	__u32 rtt_us = tcp->srtt_us >> 3, varies_us = tcp->mdev_us / QUEUE_FACTOR;
	__u32 least_us = tcp->rtt_min.s[0].v; /* the greatest number before the first measurement */

	return least_us < rtt_us ? greater(rtt_us - least_us, varies_us) : varies_us;
}

/* How long a path's answers took in the last seconds; a connection may come to any of its two. */
static __always_inline __u32 path_slowest_us(__u32 number)
{
	const struct cwdp_path *path = find_path(number);
	__u64 slowest_ns = path ? path->slowest_ns : 0;

	return slowest_ns < RTO_MIN_MAX_NS ? slowest_ns / 1000 : CWDP_TCP_RTO_MIN_MAX_US;
}

static __always_inline __u32 queued_us(const struct tcp_sock *tcp, struct cwdp_tcp_conn *conn)
{
	__u32 found_us = conn->queued_us - conn->queued_us / QUEUE_FORGOTTEN;

	found_us = greater(found_us, QUEUE_FACTOR * socket_queued_us(tcp));
	found_us = greater(found_us, path_slowest_us(conn->path));
	if (conn->flags & CWDP_STEER_BACKUP)
		found_us = greater(found_us, path_slowest_us(conn->backup_path));
	conn->queued_us = less(found_us, CWDP_TCP_RTO_MIN_MAX_US);
	return conn->queued_us;
}

static __always_inline int rto_min_us(const struct tcp_sock *tcp, struct cwdp_tcp_conn *conn)
{
	__u32 rto_us = less(CWDP_TCP_RTO_MIN_US + queued_us(tcp, conn), CWDP_TCP_RTO_MIN_MAX_US);

	if (!is_confirmed(conn, bpf_ktime_get_ns()))
		rto_us = LINUX_RTO_MIN_US;
	return greater(less(rto_us, tcp->rttvar_us), CWDP_TCP_RTO_MIN_US);
}

static __always_inline int set_timers(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sock = ctx->sk_common;
	int delay_us = CWDP_TCP_DELACK_MAX_US, rto_us;
	struct cwdp_tcp_conn *conn = NULL;
	struct cwdp_tcp_key key;
	struct tcp_sock *tcp;
	__u32 *number;

	if (!sock || (sock->skc_family != SOCKET_IPV4 && sock->skc_family != SOCKET_IPV6))
		return 0;
	describe_socket(sock, &key);
	number = bpf_map_lookup_elem(&tcp_out, &key);
	if (number)
		conn = find_connection(*number);
	if (!conn && !is_announced(&key))
		return 0;
	if (bpf_setsockopt(sock, SOL_TCP, BPF_TCP_DELACK_MAX, &delay_us, sizeof(delay_us)))
		return 0; /* it has just been closed */
	tcp = bpf_skc_to_tcp_sock(sock);
	if (!conn || !tcp)
		return 0;
	rto_us = rto_min_us(tcp, conn);
	bpf_setsockopt(sock, SOL_TCP, BPF_TCP_RTO_MIN, &rto_us, sizeof(rto_us));
	return 0;
}
