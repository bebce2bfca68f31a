/* SPDX-License-Identifier: GPL-2.0-only */
/* Steered TCP connections, and what is known of those of other hosts. */
#pragma once

#include <linux/types.h>

/* A TCP connection as this host has it; addresses of IPv4 as ::ffff:a.b.c.d, which tells the family. */
struct cwdp_tcp_key {
	__be32 local_addr[4];
	__be32 remote_addr[4];
	__be16 local_port;
	__be16 remote_port;
};

/* Where a connection's segments are to go: one direction, that from this host. The agent writes what is
 * wanted, the dataplane what became of it. */
struct cwdp_tcp_conn {
	struct cwdp_tcp_key key;
	__be16 sport; /* of its path on the wire */
	__be16 backup_sport;
	__u16 path; /* indices in paths */
	__u16 backup_path;
	__u16 flags;        /* enum cwdp_steer_flag; 0: free */
	__u16 managed;      /* by the agent's desired state, and on whose behalf; otherwise by hand */
	__be16 used_sport;  /* of the last segment on the wire */
	__u16 route;        /* enum tcp_route, of the last segment */
	__u16 tick;         /* when the route was last looked at, in jiffies; where it is not the path */
	__u16 acked_tick;   /* when acked_ns was set, in jiffies */
	__u64 confirmed_ns; /* CLOCK_MONOTONIC, when the far end last said that it restores the ports */
	__u64 buffers;      /* that left by its path or backup; one may be many segments */
	__u64 bytes;        /* of these buffers, from the IP header on */
	__u64 left_ns;      /* when a path was left that has not been gone back to, or last seen not alive */
	__u32 queued_us;    /* how long queues may delay its round trips, by those of late */
	__be32 acked;       /* the acknowledgement number that came then */
	__u64 announced_ns; /* when it was announced first */
	__u64 acked_ns;     /* when the far end acknowledged something last, to a jiffy */
	__u64 checked_ns;   /* the confirmed_ns that was found to hold last, */
	__u16 checked_tick; /* and when, in jiffies */
	__u16 unused[3];
};

/* How many connections are steered in all, and by the sum of their ports: a look at `tcp_out` costs more. */
struct cwdp_tcp_steered {
	__u32 total;
	__u32 unused;
	__u32 by_sum[CWDP_TCP_SUMS];
};

/* What names a connection whose segments bear the ports of a path: the addresses of who sends and who
 * receives, and the one's complement sum of its two ports, which stays what it was. A sum of 0 stands for the
 * host, which announces connections. */
struct cwdp_tcp_wire_key {
	__be32 from_addr[4];
	__be32 to_addr[4];
	__u32 port_sum;
};

/* The ports that such segments are given back. */
struct cwdp_tcp_ports {
	__be16 from_port;
	__be16 to_port;
	__u32 number;       /* in tcp_conns: of the other direction, if that is steered */
	__u64 announced_ns; /* CLOCK_MONOTONIC; of this host's own connections the end of time */
};
