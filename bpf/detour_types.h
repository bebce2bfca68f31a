/* SPDX-License-Identifier: GPL-2.0-only */
/* What maps hold about ways round a dead NIC; see detour.h. */
#pragma once

#include <linux/types.h>

/* A destination, IPv4 as ::ffff:a.b.c.d. */
struct cwdp_address {
	__be32 addr[4];
};

/* What there is for a destination when neither path nor backup of a queue pair is alive: watched paths by
 * their numbers, 0 where there is none. */
struct cwdp_detour {
	__u16 detour;       /* in paths: to the other NIC of the destination's host */
	__u16 other;        /* in other_paths: to the destination, by this host's other NIC */
	__u16 other_detour; /* in other_paths: to the other NIC of its host, by this host's other NIC */
	__u16 unused;
	__be32 gateway[4]; /* of other and other_detour; zero: as the kernel routes */
};

/* The other NIC of this host: it sends and receives in this one's place, and this one in its. */
struct cwdp_partner {
	__u32 ifindex; /* 0: there is none */
	__be32 ipv4;
	__be32 ipv6[4];
	__u8 mac[6];
	__u16 unused;
	__u64 unused_too[4];
};
