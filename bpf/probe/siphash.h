/* SPDX-License-Identifier: GPL-2.0-only */
/* SipHash-2-4 (Aumasson and Bernstein, 2012) over 64-bit words in memory order. */
#pragma once

#include <linux/types.h>

#include "types.h"

struct siphash {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 rotate_left(__u64 x, int bits)
{
	return x << bits | x >> (64 - bits);
}

static __always_inline void sip_round(struct siphash *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = rotate_left(s->v1, 13) ^ s->v0;
	s->v3 = rotate_left(s->v3, 16) ^ s->v2;
	s->v0 = rotate_left(s->v0, 32);
	s->v2 += s->v1;
	s->v0 += s->v3;
	s->v1 = rotate_left(s->v1, 17) ^ s->v2;
	s->v3 = rotate_left(s->v3, 21) ^ s->v0;
	s->v2 = rotate_left(s->v2, 32);
}

static __always_inline void siphash_start(struct siphash *s, const struct cwdp_key *key)
{
	s->v0 = key->k0 ^ 0x736f6d6570736575ULL;
	s->v1 = key->k1 ^ 0x646f72616e646f6dULL;
	s->v2 = key->k0 ^ 0x6c7967656e657261ULL;
	s->v3 = key->k1 ^ 0x7465646279746573ULL;
}

static __always_inline void siphash_word(struct siphash *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

/* rest holds the last bytes, fewer than 8, of a message of length_bytes. */
static __always_inline __u64 siphash_finish(struct siphash *s, __u64 rest, __u64 length_bytes)
{
	siphash_word(s, rest | length_bytes << 56);
	s->v2 ^= 0xff;
	sip_round(s);
	sip_round(s);
	sip_round(s);
	sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}
