/* SPDX-License-Identifier: GPL-2.0-only */
/* A probe on the wire, and its place in the table of those under way. */
#pragma once

#include <linux/types.h>

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
	__u8 pair_position; /* enum cwdp_position */
	__be32 seq;
	__be32 path;       /* the initiator's own number of the path; of a pulse, its index in paths, of an
			      announcement, that in tcp_conns */
	__be16 sport;      /* the source port that the request was sent from */
	__be16 reply_port; /* the source port that the reply is to be sent from */
	union {
		__be32 bound_ns; /* reply: error bound of the responder's clock */
		__be16 ports[2]; /* request over TCP: of a connection, source and destination; else 0 */
	};
	__be64 t1;          /* request leaves, initiator's clock */
	__be64 t2;          /* request arrives, responder's clock */
	__be64 peer_offset; /* reply: timeline minus responder's clock at t2 */
	__be64 t3;          /* reply leaves, responder's clock */
	__be64 mac;         /* SipHash-2-4 */
};

/* A whole probe from the UDP header on. Over TCP, UDP header and BTH are a TCP header: ports, a sequence
 * number of 0 in place of length and checksum, CWDP_TCP_PROBE at the QPN, and a checksum of 0 and an urgent
 * pointer at the PSN. Packed, since the probe's 64-bit fields come to lie at odd words. */
struct cwdp_probe_packet {
	__be16 sport;
	__be16 dport;
	__be16 len;
	__be16 check;
	struct cwdp_bth bth;
	struct cwdp_probe probe;
	__be32 icrc; /* room for it; a probe is consumed before any RDMA engine would check it */
} __attribute__((packed, aligned(4)));

/* Of a packet: as far as a probe goes behind two VLAN tags and IPv6. */
struct cwdp_beginning {
	__u8 bytes[160];
};

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
	__u16 path; /* of a pulse: index in paths; of an announcement: in tcp_conns, and SLOT_OF_CONNECTION */
};
