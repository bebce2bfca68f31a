/* SPDX-License-Identifier: Apache-2.0 */
#include "packets/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fail.h"
#include "packets/wire.h"

#define SLOTS       2048
#define SLOT_BYTES  8192
#define BLOCK_BYTES (16 * SLOT_BYTES)
#define NS_PER_S    1000000000ull

static socklen_t fill_address(union address *address, int family, const uint8_t *ip, uint16_t port)
{
	memset(address, 0, sizeof(*address));
	address->any.sa_family = family;
	if (family == AF_INET6) {
		memcpy(&address->ipv6.sin6_addr, ip, sizeof(address->ipv6.sin6_addr));
		address->ipv6.sin6_port = htons(port);
		return sizeof(address->ipv6);
	}
	memcpy(&address->ipv4.sin_addr, ip, sizeof(address->ipv4.sin_addr));
	address->ipv4.sin_port = htons(port);
	return sizeof(address->ipv4);
}

static void set_option(int socket, int level, int option, const void *value, socklen_t length)
{
	if (setsockopt(socket, level, option, value, length))
		fail_system("setsockopt");
}

static int open_socket(int family, int type, int protocol)
{
	int opened = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);

	if (opened < 0)
		fail_system("socket (are you root?)");
	return opened;
}

/* The socket is not connected: packets would carry a hash of the socket's own, by which switches on the same
 * kernel choose their way in place of the ports. */
void net_channel_open(struct channel *channel, int family, const uint8_t *local, const uint8_t *remote,
		      size_t buffer_bytes)
{
	int half = buffer_bytes / 2; /* the kernel doubles it */
	union address address;
	socklen_t length = fill_address(&address, family, local, 0);

	channel->socket = open_socket(family, SOCK_RAW, IPPROTO_RAW);
	channel->remote_length = fill_address(&channel->remote, family, remote, 0);
	set_option(channel->socket, SOL_SOCKET, SO_SNDBUF, &half, sizeof(half));
	if (bind(channel->socket, &address.any, length))
		fail_system("bind to the local address of a queue pair");
}

bool net_send(const struct channel *channel, const uint8_t *data, size_t length)
{
	return sendto(channel->socket, data, length, 0, &channel->remote.any, channel->remote_length) >= 0 ||
	       errno != EAGAIN;
}

static void attach_filter(int socket, const struct sock_filter *code, size_t steps)
{
	struct sock_fprog program = {.len = steps, .filter = (struct sock_filter *)code};

	set_option(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* UDP to the RoCEv2 port, not a later fragment; offsets are from the IP header. */
static void filter_roce(int socket, int family)
{
	static const struct sock_filter ipv4[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 6),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 6),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 4, 0),
		BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
		BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ROCE_PORT, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};
	static const struct sock_filter ipv6[] = {
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 6),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 3),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 42),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ROCE_PORT, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
		BPF_STMT(BPF_RET | BPF_K, 0),
	};

	if (family == AF_INET6)
		attach_filter(socket, ipv6, sizeof(ipv6) / sizeof(*ipv6));
	else
		attach_filter(socket, ipv4, sizeof(ipv4) / sizeof(*ipv4));
}

void net_ring_open(struct ring *ring, int family)
{
	struct tpacket_req request = {.tp_block_size = BLOCK_BYTES,
				      .tp_block_nr = SLOTS * SLOT_BYTES / BLOCK_BYTES,
				      .tp_frame_size = SLOT_BYTES,
				      .tp_frame_nr = SLOTS};
	struct sockaddr_ll address = {.sll_family = AF_PACKET,
				      .sll_protocol = htons(family == AF_INET6 ? ETH_P_IPV6 : ETH_P_IP)};
	int version = TPACKET_V2;

	ring->socket = open_socket(AF_PACKET, SOCK_DGRAM, 0); /* deaf until bound */
	filter_roce(ring->socket, family);
	set_option(ring->socket, SOL_PACKET, PACKET_VERSION, &version, sizeof(version));
	set_option(ring->socket, SOL_PACKET, PACKET_RX_RING, &request, sizeof(request));
	ring->slots = mmap(NULL, SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring->socket, 0);
	if (ring->slots == MAP_FAILED)
		fail_system("mmap of the receive ring");
	if (bind(ring->socket, (struct sockaddr *)&address, sizeof(address)))
		fail_system("bind of the receive ring");
}

static struct tpacket2_hdr *slot(const struct ring *ring)
{
	return (struct tpacket2_hdr *)(ring->slots + (size_t)ring->next * SLOT_BYTES);
}

bool net_ring_take(const struct ring *ring, struct arrival *arrival)
{
	const struct tpacket2_hdr *header = slot(ring);

	if (!(__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
		return false;
	arrival->data = (const uint8_t *)header + header->tp_net;
	arrival->length = header->tp_snaplen;
	arrival->at_ns = header->tp_sec * NS_PER_S + header->tp_nsec;
	return true;
}

void net_ring_release(struct ring *ring)
{
	__atomic_store_n(&slot(ring)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	ring->next = (ring->next + 1) % SLOTS;
}

void net_ring_count_lost(struct ring *ring)
{
	struct tpacket_stats stats; /* since the last time */
	socklen_t length = sizeof(stats);

	if (getsockopt(ring->socket, SOL_PACKET, PACKET_STATISTICS, &stats, &length))
		fail_system("statistics of the receive ring");
	ring->lost += stats.tp_drops;
}

void net_hold_port(int family)
{
	static const struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
	static const uint8_t any_ip[sizeof(struct in6_addr)];
	int opened = open_socket(family, SOCK_DGRAM, 0), on = 1;
	union address address;
	socklen_t length = fill_address(&address, family, any_ip, ROCE_PORT);

	attach_filter(opened, nothing, sizeof(nothing) / sizeof(*nothing));
	if (family == AF_INET6) {
		set_option(opened, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
		set_option(opened, IPPROTO_UDP, UDP_NO_CHECK6_RX, &on, sizeof(on));
	}
	/* Somebody who holds it already serves as well. */
	if (bind(opened, &address.any, length) && errno != EADDRINUSE)
		fail_system("bind to the RoCEv2 port");
}
