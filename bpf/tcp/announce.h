/* SPDX-License-Identifier: GPL-2.0-only */
/* A host says which connections' segments will bear the ports of paths: a TCP probe with the connection's
 * ports in it, signed with the rest. The far end's XDP program notes them and answers as to any probe, so the
 * sender knows that each such segment will be given its ports back. Nobody's user space takes part. */
#pragma once

#include "clock.h"
#include "tcp/segment.h"

#define TCP_LEASE_NS       (CWDP_TCP_LEASE_MS * 1000000ULL)
#define OWN_CONNECTION     (~0ULL) /* announced_ns of this host's own */
#define SLOT_OF_CONNECTION 0x8000  /* of a slot's path: the number is a connection's */

static __always_inline struct cwdp_tcp_conn *find_connection(__u32 number)
{
	return number ? bpf_map_lookup_elem(&tcp_conns, &number) : NULL;
}

/* Egress: put the ports of a steered connection into a probe. */
static __always_inline bool announce(struct cwdp_probe *probe, __u32 number)
{
	struct cwdp_tcp_conn *conn = find_connection(number);

	if (!conn || !(conn->flags & CWDP_STEER_PORTS))
		return false;
	probe->ports[0] = conn->key.local_port;
	probe->ports[1] = conn->key.remote_port;
	if (!conn->announced_ns)
		WRITE_ONCE(conn->announced_ns, clock_local_ns());
	return true;
}

static __always_inline bool is_announcement(const struct frame *frame)
{
	return frame->protocol == IPPROTO_TCP && frame->probe->ports[0];
}

/* The number of a connection whose other direction is announced; 0 where it is not steered. */
static __always_inline __u32 other_direction(const struct cwdp_tcp_wire_key *wire,
					     const struct cwdp_tcp_ports *ports)
{
	struct cwdp_tcp_key key = {.local_port = ports->to_port, .remote_port = ports->from_port};
	__u32 *number;

	__builtin_memcpy(key.local_addr, wire->to_addr, sizeof(key.local_addr));
	__builtin_memcpy(key.remote_addr, wire->from_addr, sizeof(key.remote_addr));
	number = bpf_map_lookup_elem(&tcp_out, &key);
	return number ? *number : 0;
}

/* Keep the ports of a connection, unless segments of another one with the same sum may still come. */
__noinline int tcp_note(const struct cwdp_tcp_wire_key *wire, __u32 from_port, __u32 to_port)
{
	struct cwdp_tcp_ports ports = {.from_port = from_port, .to_port = to_port}, *known;
	struct cwdp_tcp_wire_key key; /* on the stack, where kernels before 6.2 want the keys of maps */

	if (!wire)
		return false;
	key = *wire;
	ports.number = other_direction(&key, &ports);
	ports.announced_ns = bpf_ktime_get_coarse_ns();
	known = bpf_map_lookup_elem(&tcp_in, &key);
	if (known && known->from_port == ports.from_port && known->to_port == ports.to_port) {
		if (known->announced_ns != OWN_CONNECTION) {
			known->announced_ns = ports.announced_ns;
			WRITE_ONCE(known->number, ports.number);
		}
		return true;
	}
	if (known && known->announced_ns == OWN_CONNECTION)
		return false;
	if (known && ports.announced_ns - known->announced_ns < CWDP_TCP_LEASE_MS * 2 * 1000000ULL)
		return false;
	if (bpf_map_update_elem(&tcp_in, &key, &ports, BPF_ANY))
		return false;
	count(CWDP_TCP_ANNOUNCED);
	key.port_sum = 0;
	bpf_map_update_elem(&tcp_in, &key, &ports, BPF_ANY);
	return true;
}

/* Ingress: take in an announcement; whether its segments may come now. */
static __always_inline bool take_in_announcement(const struct frame *frame)
{
	__be16 from_port = frame->probe->ports[0], to_port = frame->probe->ports[1];
	struct cwdp_tcp_wire_key wire = {};

	read_addresses(frame, wire.from_addr, wire.to_addr);
	wire.port_sum = fold((__u32)from_port + to_port);
	return tcp_note(&wire, from_port, to_port);
}

/* Ingress: the far end restores a connection's ports, as it was asked at sent_ns. That may have been for
 * another one, which had the number before. */
static __always_inline void tcp_confirmed(__u32 number, __u64 sent_ns)
{
	struct cwdp_tcp_conn *conn = find_connection(number);

	if (conn && conn->announced_ns && (__s64)(sent_ns - conn->announced_ns) >= 0)
		WRITE_ONCE(conn->confirmed_ns, bpf_ktime_get_coarse_ns());
}

/* Has the far end said of late that it restores a connection's ports? At a CLOCK_MONOTONIC. */
static __always_inline bool is_confirmed(const struct cwdp_tcp_conn *conn, __u64 now)
{
	__u64 confirmed_ns = READ_ONCE(conn->confirmed_ns);

	return confirmed_ns && (__s64)(now - confirmed_ns) <= (__s64)TCP_LEASE_NS;
}
