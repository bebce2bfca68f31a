/* SPDX-License-Identifier: GPL-2.0-only */
/* What packets and maps hold. Python's dtypes and enums are generated from these by way of BTF. */
#pragma once

#include <linux/types.h>

#include "consts.h"

/* Why a packet was handled as it was: the index of its counter and, in lower case, the label of its metric.
 */
enum cwdp_reason {
	CWDP_PROBE_SENT,          /* egress: stamped and signed */
	CWDP_PROBE_BAD_TEMPLATE,  /* egress: marked as a probe, but not one */
	CWDP_PROBE_NO_KEY,        /* egress: the template names a key that is not there */
	CWDP_REQUEST_REFLECTED,   /* ingress: answered */
	CWDP_REQUEST_UNKNOWN_KEY, /* ingress: signed with a key that is not valid here */
	CWDP_REQUEST_BAD_MAC,     /* ingress: the signature is wrong */
	CWDP_REQUEST_BAD_PORT,    /* ingress: source port changed on the way, or no port for the reply */
	CWDP_REPLY_ACCEPTED,      /* ingress: a sample */
	CWDP_REPLY_UNKNOWN_KEY,   /* ingress: signed with a key that is not valid here */
	CWDP_REPLY_BAD_MAC,       /* ingress: the signature is wrong */
	CWDP_REPLY_BAD_PORT,      /* ingress: source port changed on the way */
	CWDP_REPLY_UNEXPECTED,    /* ingress: no such probe is under way (replayed, or later than the table is
				     long) */
	CWDP_REPLY_LATE,          /* ingress: the agent had given this probe up for lost */
	CWDP_REPLY_DUPLICATE,     /* ingress: this probe has been answered already */
	CWDP_REPLY_TIME_REVERSED, /* ingress: answered before it was sent, or sent back before it arrived */
	CWDP_BAD_LENGTH,          /* ingress: the magic of a probe, but not its length */
	CWDP_BAD_VERSION,         /* ingress: a probe of another version */
	CWDP_BAD_KIND,            /* ingress: neither request nor reply */
	CWDP_REASON_COUNT,
};

enum cwdp_probe_kind {
	CWDP_PROBE_REQUEST = 1,
	CWDP_PROBE_REPLY = 2,
};

enum cwdp_slot_state {
	CWDP_SLOT_FREE,
	CWDP_SLOT_SENT,
	CWDP_SLOT_FILLING,
	CWDP_SLOT_DONE,
};

enum cwdp_xdp_mode {
	CWDP_XDP_NATIVE = 1,
	CWDP_XDP_GENERIC = 2,
};

/* InfiniBand base transport header (IBTA 9.2), all fields in network byte order. */
struct cwdp_bth {
	__u8 opcode;
	__u8 flags;
	__be16 pkey;
	__be32 qpn; /* high 8 bits reserved */
	__be32 psn; /* high 8 bits: acknowledge request and reserved */
};

/* A probe, behind the BTH; all fields in network byte order. The initiator's egress program fills in t1 and
 * mac; the responder kind, bound, t2, peer_offset, t3 and mac. */
struct cwdp_probe {
	__be32 magic;
	__u8 version;
	__u8 kind;
	__u8 key_id;
	__u8 pair_position; /* 0 or 1 */
	__be32 seq;
	__be32 path;        /* the initiator's own number of the path */
	__be16 sport;       /* the source port that the request was sent from */
	__be16 reply_port;  /* the source port that the reply is to be sent from */
	__be32 bound_ns;    /* reply: error bound of the responder's clock */
	__be64 t1;          /* request leaves, initiator's clock */
	__be64 t2;          /* request arrives, responder's clock */
	__be64 peer_offset; /* reply: timeline minus responder's clock at t2 */
	__be64 t3;          /* reply leaves, responder's clock */
	__be64 mac;         /* SipHash-2-4 */
};

/* A whole probe from the UDP header on. Packed, since the probe's 64-bit fields come to lie at odd words. */
struct cwdp_probe_packet {
	__be16 sport;
	__be16 dport;
	__be16 len;
	__be16 check;
	struct cwdp_bth bth;
	struct cwdp_probe probe;
	__be32 icrc; /* room for it; a probe is consumed before any RDMA engine would check it */
} __attribute__((packed, aligned(4)));

/* A probe under way, and then its result. `tag` is the sequence number << 32 | enum cwdp_slot_state. */
struct cwdp_slot {
	__u64 tag;
	__u64 t1;
	__u64 t2;
	__u64 t3;
	__u64 t4;
	__u64 request_mac;
	__s64 fwd_owd_ns; /* on the timeline; meaningful where bound_ns is not CWDP_BOUND_UNSYNCED */
	__s64 rev_owd_ns;
	__u32 bound_ns; /* both clocks' bounds together, saturating */
	__be16 reply_port;
	__u16 reserved;
};

/* timeline = local + offset_ns + d * drift + min(d, slew_ns) * slew, with d = local - ref_local_ns; rates in
 * units of 2^-48. The slew ends by itself: a writer that dies in the middle of one leaves a sound line. */
struct cwdp_clock_line {
	__u64 ref_local_ns;
	__s64 offset_ns;
	__s64 drift_q48;
	__s64 slew_q48;
	__s64 slew_ns;
	__u64 bound_drift_q48; /* growth of the bound with the distance from ref_local_ns */
	__u32 bound_ns;        /* at ref_local_ns */
	__u32 synced;
};

/* The writer fills the line that is not active, then switches: a reader never sees half a line. */
struct cwdp_clock {
	struct cwdp_clock_line lines[2];
	__u32 active;
	__u32 reserved;
};

/* A cluster key lives at index key_id % CWDP_KEYS. */
struct cwdp_key {
	__u64 k0;
	__u64 k1;
	__u32 key_id;
	__u32 valid;
};

struct cwdp_counters {
	__u64 count[CWDP_REASON_COUNT];
};

/* What the pinned tree was made from. */
struct cwdp_meta {
	__u32 abi;
	__u32 ifindex;
	enum cwdp_xdp_mode xdp_mode;
	__u32 reserved;
	char tag[16]; /* start of the object file's SHA-256, in hex, not terminated */
};

/* Types and constants that no map mentions, so that the object's BTF has them. */
struct cwdp_abi_types {
	struct cwdp_probe_packet probe_packet;
	enum cwdp_constant constant;
	enum cwdp_reason reason;
	enum cwdp_probe_kind probe_kind;
	enum cwdp_slot_state slot_state;
};
