/* SPDX-License-Identifier: GPL-2.0-only */
/* The timers of steered connections' sockets, set by an iterator over all sockets of a network namespace.
 *
 * A connection leaves a dead path within milliseconds, but what was lost last is noticed by nobody: its
 * sender waits for its retransmission timer, which Linux lets be no shorter than 200 ms, as the far end may
 * hold an acknowledgement back for as long. Where both ends are ours, both can be less. */
#pragma once

#include "tcp/announce.h"

#define SOL_TCP            6 /* of <netinet/tcp.h> and <linux/bpf.h> */
#define BPF_TCP_DELACK_MAX 1003
#define BPF_TCP_RTO_MIN    1004
#define SOCKET_IPV4        2
#define SOCKET_IPV6        10

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

static __always_inline int set_timers(struct bpf_iter__tcp *ctx)
{
	int rto_us = CWDP_TCP_RTO_MIN_US, delay_us = CWDP_TCP_DELACK_MAX_US;
	struct sock_common *sock = ctx->sk_common;
	struct cwdp_tcp_key key;
	bool is_steered_here;

	if (!sock || (sock->skc_family != SOCKET_IPV4 && sock->skc_family != SOCKET_IPV6))
		return 0;
	describe_socket(sock, &key);
	is_steered_here = bpf_map_lookup_elem(&tcp_out, &key);
	if (!is_steered_here && !is_announced(&key))
		return 0;
	if (bpf_setsockopt(sock, SOL_TCP, BPF_TCP_DELACK_MAX, &delay_us, sizeof(delay_us)))
		return 0; /* it has just been closed */
	if (is_steered_here)
		bpf_setsockopt(sock, SOL_TCP, BPF_TCP_RTO_MIN, &rto_us, sizeof(rto_us));
	return 0;
}
