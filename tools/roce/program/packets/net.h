/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets: raw ones to send whole IP packets through the host's stack, so that its tc egress sees them, and
 * packet sockets to receive them with their IP headers, behind XDP. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

union address {
	struct sockaddr any;
	struct sockaddr_in ipv4;
	struct sockaddr_in6 ipv6;
};

/* A way to send from one address to another. */
struct channel {
	int socket;
	union address remote;
	socklen_t remote_length;
	bool blocked; /* the socket has no room; the caller's to set and to clear */
};

/* Packets that have come from the network, in memory shared with the kernel. */
struct ring {
	int socket;
	uint8_t *slots;
	uint32_t next;
	uint64_t lost; /* there was no slot free */
};

struct arrival {
	const uint8_t *data; /* from the IP header on */
	size_t length;
	uint64_t at_ns; /* when the kernel took it in, CLOCK_REALTIME */
};

/* Opens a channel between two addresses, whose packets never hold more than `buffer_bytes` of memory at a
 * time. */
void net_channel_open(struct channel *channel, int family, const uint8_t *local, const uint8_t *remote,
		      size_t buffer_bytes);

/* Sends a packet; returns false if there is no room now. What is refused for another reason counts as lost on
 * the way, as it would be behind a NIC. */
bool net_send(const struct channel *channel, const uint8_t *data, size_t length);

/* Takes all RoCEv2 packets of a family, whatever interface they come in by. */
void net_ring_open(struct ring *ring, int family);

/* Takes the next packet; false if there is none. It stays readable until it is released. */
bool net_ring_take(const struct ring *ring, struct arrival *arrival);
void net_ring_release(struct ring *ring);

/* Adds up what found no slot. */
void net_ring_count_lost(struct ring *ring);

/* Holds the RoCEv2 port open and throws away what comes there, so that the kernel sends no ICMP errors. */
void net_hold_port(int family);
