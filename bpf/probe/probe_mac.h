/* SPDX-License-Identifier: GPL-2.0-only */
/* What is signed. The newest timestamp comes last, so that little work lies between reading the clock and
 * sending.
 *
 * - request: seq, sport, reply_port | over TCP: ports of a connection, protocol | source address |
 * destination address | t1
 * - reply: mac of the request | t2 | peer_offset | t3 | bound_ns
 *
 * Version, kind and key each have one value that is right; path and position are read by nobody on the way,
 * the initiator knows them by seq. Of t1, which only the initiator reads, the low 56 bits are signed: they
 * share the last block with the length. The mac of the request stands for all that it covers, addresses and
 * ports included; the initiator has kept it. The lengths tell the two kinds of message apart. */
#pragma once

#include "packet/parse.h"
#include "probe/siphash.h"

#define T1_SIGNED_BITS    56
#define REQUEST_BYTES     15 /* without the addresses, over UDP */
#define TCP_BYTES         8
#define REPLY_BYTES       36
#define IP_ADDRESS_BYTES  8 /* both */
#define IP6_ADDRESS_BYTES 32

/* Everything but t1; returns the length of the whole message. */
static __always_inline __u64 mac_request_start(struct siphash *s, const struct cwdp_key *key,
					       const struct frame *frame)
{
	const struct cwdp_probe *probe = frame->probe;
	__u64 length = REQUEST_BYTES;
	const __u64 *addresses;

	siphash_start(s, key);
	siphash_word(s, probe->seq | (__u64) * (const __u32 *)(const void *)&probe->sport << 32);
	if (frame->protocol == IPPROTO_TCP) {
		siphash_word(s, probe->bound_ns | (__u64)IPPROTO_TCP << 32);
		length += TCP_BYTES;
	}
	if (!frame->is_ipv6) {
		siphash_word(s, *(const __u64 *)(const void *)&frame->ip->saddr);
		return length + IP_ADDRESS_BYTES;
	}
	addresses = (const void *)&frame->ip6->saddr;
	siphash_word(s, addresses[0]);
	siphash_word(s, addresses[1]);
	siphash_word(s, addresses[2]);
	siphash_word(s, addresses[3]);
	return length + IP6_ADDRESS_BYTES;
}

static __always_inline __u64 mac_request_finish(struct siphash *s, __u64 t1, __u64 length_bytes)
{
	return siphash_finish(s, t1 & ((1ULL << T1_SIGNED_BITS) - 1), length_bytes);
}

/* Everything but t3 and what follows it. */
static __always_inline void mac_reply_start(struct siphash *s, const struct cwdp_key *key, __u64 request_mac,
					    __be64 t2, __be64 peer_offset)
{
	siphash_start(s, key);
	siphash_word(s, request_mac);
	siphash_word(s, t2);
	siphash_word(s, peer_offset);
}

static __always_inline __u64 mac_reply_finish(struct siphash *s, __be64 t3, __be32 bound_ns)
{
	siphash_word(s, t3);
	return siphash_finish(s, bound_ns, REPLY_BYTES);
}

/* The valid key of this number, or none. */
static __always_inline struct cwdp_key *find_key(__u8 key_id)
{
	__u32 index = key_id % CWDP_KEYS;
	struct cwdp_key *key = bpf_map_lookup_elem(&keys, &index);

	if (!key || !key->valid || key->key_id != key_id)
		return NULL;
	return key;
}
