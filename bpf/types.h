/* SPDX-License-Identifier: GPL-2.0-only */
/* What packets and maps hold. Python's dtypes and enums are generated from these by way of BTF. */
#pragma once

#include <linux/types.h>

#include "clock_types.h"
#include "consts.h"
#include "probe_types.h"
#include "tcp_types.h"

/* Why a packet was handled as it was: the index of its counter and, in lower case, its metric's label. */
enum cwdp_reason {
	CWDP_PROBE_SENT,         /* egress: stamped and signed */
	CWDP_PROBE_BAD_TEMPLATE, /* egress: marked as a probe, but not one */
	CWDP_PROBE_NOT_OURS,     /* egress: marked as a probe by another's socket; left as any other packet */
	CWDP_PROBE_NO_KEY,       /* egress: the template names a key that is not there */
	CWDP_REQUEST_REFLECTED,  /* ingress: answered */
	CWDP_REQUEST_UNKNOWN_KEY, /* ingress: signed with a key that is not valid here */
	CWDP_REQUEST_BAD_MAC,     /* ingress: the signature is wrong */
	CWDP_REQUEST_BAD_PORT,    /* ingress: source port changed on the way, or no port for the reply */
	CWDP_REPLY_ACCEPTED,      /* ingress: a sample */
	CWDP_REPLY_UNKNOWN_KEY,   /* ingress: signed with a key that is not valid here */
	CWDP_REPLY_BAD_MAC,       /* ingress: the signature is wrong */
	CWDP_REPLY_BAD_PORT,      /* ingress: source port changed on the way */
	CWDP_REPLY_UNEXPECTED, /* ingress: no such probe is under way: replayed, or too late for the table */
	CWDP_REPLY_LATE,       /* ingress: the agent had given this probe up for lost */
	CWDP_REPLY_DUPLICATE,  /* ingress: this probe has been answered already */
	CWDP_REPLY_TIME_REVERSED, /* ingress: answered before it was sent, or sent back before it arrived */
	CWDP_BAD_LENGTH,          /* ingress: the magic of a probe, but not its length */
	CWDP_BAD_VERSION,         /* ingress: a probe of another version */
	CWDP_BAD_KIND,            /* ingress: neither request nor reply */
	CWDP_PULSE_BAD_PATH,      /* egress: a pulse for a path that the table does not have */
	CWDP_QP_ADDED,            /* a queue pair seen for the first time, or again after its eviction */
	CWDP_QP_EVICTED,          /* the least recently seen queue pair of a full bucket made room */
	CWDP_QP_UNTRACKED,        /* a packet passed, steered if so wanted, without a place in the table */
	CWDP_STEER_REWRITTEN,     /* egress: left with the source port of its path */
	CWDP_STEER_BAD_LENGTH,    /* egress: lengths of headers and packet disagree; left as it came */
	CWDP_STEER_GSO,           /* egress: several datagrams in one buffer; left as they came */
	CWDP_STEER_NO_MEMORY,     /* egress: could not be made writable; left as it came */
	CWDP_PATH_WENT_DOWN,      /* a path was given up for its backup */
	CWDP_PATH_CAME_UP,        /* a path had been healthy for its hold-down time */
	CWDP_PACE_CLAMPED,        /* egress: would have had to wait longer than the queue keeps time for */
	CWDP_DETOUR_TAKEN,        /* egress: sent to the other NIC of the host that it is for */
	CWDP_DETOUR_OTHER_NIC,    /* egress: left by the other NIC of this host */
	CWDP_DETOUR_REFUSED,      /* egress: was to take a detour and could not; left as it came */
	CWDP_DETOUR_RESTORED,     /* ingress: was for this host's other NIC, and was given to it */
	CWDP_DETOUR_UNKNOWN, /* ingress: marked as for another NIC, and there is none; passed as it came */
	CWDP_GO_BACK_GIVEN,  /* egress: the agent's NAK was given to a queue pair, or its ACK sent again */
	CWDP_GO_BACK_NOT_STEERED,  /* egress: such a packet for a queue pair without a backup; dropped */
	CWDP_GO_BACK_NOT_SWITCHED, /* egress: such a packet, and the queue pair's path is in use; dropped */
	CWDP_TCP_STEERED,          /* egress: a buffer of segments left by its path */
	CWDP_TCP_NOT_CONFIRMED,  /* egress: left with its own ports: the far end does not restore them yet */
	CWDP_TCP_CANNOT_BEAR,    /* egress: SYN, RST, without ACK or urgent; left with its own ports */
	CWDP_TCP_NO_PATH,        /* egress: neither path nor backup is alive; left with its own ports */
	CWDP_TCP_LEFT_ALONE,     /* egress: behind IP options, extension headers, or a fragment */
	CWDP_TCP_BAD_CONNECTION, /* egress: an announcement of a connection that the table does not have */
	CWDP_TCP_ANNOUNCED,      /* ingress: a connection's ports were noted */
	CWDP_TCP_ANNOUNCE_REFUSED, /* ingress: another's with that sum may still send, or the table is full */
	CWDP_TCP_RESTORED,         /* ingress: a segment was given its ports back */
	CWDP_TCP_UNKNOWN, /* ingress: from a host that announces, but of no connection announced; dropped */
	CWDP_TCP_QUOTE_RESTORED, /* ingress: an ICMP error's quote was given its ports back */
	CWDP_TCP_QUOTE_UNKNOWN,  /* ingress: such a quote, of no steered connection; passed as it came */
	CWDP_PATH_DOUBTED,       /* egress: said again while nobody pulses; the other path is taken */
	CWDP_BURST_EVICTED,      /* a burst was under way when its queue pair lost its place; not told */
	CWDP_REASON_COUNT,
};

enum cwdp_probe_kind {
	CWDP_PROBE_REQUEST = 1,
	CWDP_PROBE_REPLY = 2,
};

/* Place of a probe in its pair, or that it has none. */
enum cwdp_position {
	CWDP_POSITION_FIRST,
	CWDP_POSITION_SECOND,
	CWDP_POSITION_PULSE,      /* only asks whether a path is alive */
	CWDP_POSITION_CONNECTION, /* asks whether a TCP connection's ports will be restored */
};

enum cwdp_slot_state {
	CWDP_SLOT_FREE,
	CWDP_SLOT_SENT,
	CWDP_SLOT_FILLING,
	CWDP_SLOT_DONE,
};

/* The agent's sockets that send probes of an interface. */
enum cwdp_sender {
	CWDP_SENDER_PAIRS_IPV4,
	CWDP_SENDER_PAIRS_IPV6,
	CWDP_SENDER_PULSES_IPV4,
	CWDP_SENDER_PULSES_IPV6,
	CWDP_SENDER_GO_BACK_IPV4,
	CWDP_SENDER_GO_BACK_IPV6,
	CWDP_SENDER_TCP_IPV4, /* pulses and announcements */
	CWDP_SENDER_TCP_IPV6,
	CWDP_SENDER_COUNT,
};

enum cwdp_xdp_mode {
	CWDP_XDP_NATIVE = 1,
	CWDP_XDP_GENERIC = 2,
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

/* Kinds of NAK, by the syndrome of the AETH (IBTA 9.7.5.2.2); the index of their counter. */
enum cwdp_nak {
	CWDP_NAK_RNR,
	CWDP_NAK_PSN_SEQUENCE,
	CWDP_NAK_INVALID_REQUEST,
	CWDP_NAK_REMOTE_ACCESS,
	CWDP_NAK_REMOTE_OPERATION,
	CWDP_NAK_OTHER,
};

enum cwdp_steer_flag {
	CWDP_STEER_ON = 1,
	CWDP_STEER_BACKUP = 2,     /* backup_sport is to be used while the primary path is down */
	CWDP_STEER_FLOW_LABEL = 4, /* IPv6: the flow label follows the source port */
	CWDP_STEER_PACED = 8,      /* has a slice, or a rate of its own */
	CWDP_STEER_PORTS = 16,     /* TCP: the ports are those of the path, which the far end restores */
};

/* A queue pair as one end of the wire names it: the other end's address (IPv4 as ::ffff:a.b.c.d) and the
 * destination QPN of its packets in this direction. */
struct cwdp_qp_key {
	__be32 addr[4];
	__u32 qpn;
};

/* What operators want of a queue pair; kept until they want otherwise. */
struct cwdp_steer {
	__be16 sport;
	__be16 backup_sport;
	__u16 path; /* indices in paths; 0: not watched */
	__u16 backup_path;
	__u16 flags;   /* enum cwdp_steer_flag */
	__u16 managed; /* by the agent's desired state, and on whose behalf; otherwise by hand */
};

/* How many queue pairs are steered, by the lowest bits of their QPNs: a look at `steer` costs more. */
struct cwdp_steered {
	__u32 qps[CWDP_STEERED_QPNS];
};

/* One direction of a queue pair, in three cache lines: what every packet needs, what steered ones need, what
 * is rare. `generation` tells whether what was copied from steer and slices is of today. */
struct cwdp_qp {
	__u64 tag; /* hash of the key; 0: free */
	__u64 packets;
	__u64 bytes; /* of IP packets */
	__u64 last_seen_ns;
	__u16 tick; /* when last_seen_ns was written, in units of 2^QP_TICK_SHIFT jiffies; QP_SETTLED */
	__u16 data_jiffies; /* when the last data packet came */
	__u32 generation;
	__u32 next_psn;    /* of requests; QP_PSN_* above the 24 bits */
	__be16 used_sport; /* of the last packet, as it was on the wire */
	__be16 sport;
	__be16 backup_sport;
	__u16 path;
	__u16 backup_path;
	__u8 flags; /* enum cwdp_steer_flag */
	__u8 slice;
	__u64 icrc_known[2]; /* UDP length << 48 | old XOR new source port << 32 | change of the ICRC */
	__u64 departure_ns;  /* earliest, of the next packet */
	union {
		__u32 pace_q18;  /* egress: 2^-18 ns per byte; 0: not paced by itself */
		__u32 acked_psn; /* ingress: the last acknowledged; QP_PSN_* above the 24 bits */
	};
	__u32 priority;
	union {
		__u64 psn_window; /* ingress: requests received: bit i stands for next_psn - 1 - i */
		__u64 ack_sent;   /* egress: of the last ACK, the AETH << 32 | QP_PSN_KNOWN | the PSN */
	};
	struct cwdp_qp_key key;
	__u32 next_response_psn;
	__u64 acks;
	__u64 ce_marks;
	__u64 cnps;
	__u64 psn_retransmitted; /* egress: sent again; ingress: arrived again */
	__u64 psn_gaps;          /* ingress: passed over when a later one arrived */
	__u64 psn_reordered;     /* ingress: passed over, and arrived later */
	__u32 naks[CWDP_NAK_KINDS];
};

struct cwdp_qp_bucket {
	struct cwdp_qp ways[CWDP_QP_WAYS];
};

enum cwdp_path_state {
	CWDP_PATH_UP,
	CWDP_PATH_DOWN,
};

/* A watched path: to one address from one source port, in a line of the dataplane's and one of the user's. */
struct cwdp_path {
	__u64 waiting_since_ns; /* when the first pulse after the last answer left */
	__u64 last_answer_ns;
	__u64 answered_sent_ns; /* when the pulse left that was answered last */
	__u32 unanswered;       /* pulses since the last answer */
	__u32 state;            /* enum cwdp_path_state */
	__u64 changed_ns;
	__u64 healthy_since_ns;
	__u64 hold_ns; /* how long it must be healthy before it is used again */
	__u64 flaps;
	__be32 dst[4];
	__be16 sport;
	__u16 protocol;   /* IPPROTO_TCP; 0: RoCEv2's */
	__u32 users;      /* queue pairs or connections steered over it or backed up by it */
	__u64 slow_ns;    /* how long answers took of late */
	__u32 primaries;  /* queue pairs steered over it, not only backed up by it */
	__u32 detours;    /* detours that it is part of; free where nobody uses it and it is part of none */
	__u64 asked_ns;   /* when the last pulse left */
	__u64 again_ns;   /* when something was said again over it while nobody sent pulses */
	__u64 slowest_ns; /* how long answers took in the last seconds */
};

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

/* What may be changed while packets flow, and, in a cache line of their own, what they move. */
struct cwdp_control {
	__u32 generation;   /* raised by every change of steer or of slices */
	__u32 sample_below; /* data packets whose hash lies below are stamped; 0: none */
	__u64 hash_seed;
	__u64 dead_after_ns;
	__u64 hold_down_ns;
	__u64 hold_down_max_ns;
	__u64 pulse_gap_ns;      /* pulses of a path further apart do not add up to a silence; 0: all do */
	__u64 resumed_ns;        /* when pulses left again after a pause that was longer than that, */
	__u64 paused_ns;         /* and how long it was */
	__u64 sample_head;       /* samples taken so far */
	__u64 event_head;        /* events so far */
	__u64 newcomers[2];      /* by direction, of queue pairs that nobody steers; see qp.h */
	__u64 asked_ns;          /* when the last pulse left, over any path */
	__u64 again_ns;          /* when something was said again over any path while no pulse left */
	__u64 burst_head;        /* bursts told so far */
	__u64 burst_gap_jiffies; /* a longer one ends a burst; 0: none are followed */
	__u64 senders[CWDP_SENDER_COUNT]; /* cookies of the sockets whose probes are signed; 0: none */
	struct cwdp_partner partner;
};

enum cwdp_direction {
	CWDP_EGRESS,
	CWDP_INGRESS,
};

/* A data packet as it passed one end; both ends pick the same ones. */
struct cwdp_sample {
	__u64 number; /* from 1; written last */
	__u64 local_ns;
	__s64 offset_ns; /* timeline minus local */
	__u32 bound_ns;
	__u32 psn; /* opcode << 24 | PSN */
	struct cwdp_qp_key key;
	__be16 sport;
	__u16 direction; /* enum cwdp_direction */
};

enum cwdp_event_kind {
	CWDP_EVENT_PATH_DOWN,
	CWDP_EVENT_PATH_UP,
};

/* A decision of the dataplane. */
struct cwdp_event {
	__u64 number; /* from 1; written last */
	__u64 local_ns;
	__s64 offset_ns; /* timeline minus local */
	__u32 bound_ns;
	__u16 kind; /* enum cwdp_event_kind */
	__u16 path;
	__u64 lasted_ns; /* down: since the first unanswered pulse; up: how long it has been healthy */
	__u64 hold_ns;
	__u32 unanswered;
	__u32 reserved;
};

/* What holds slices to their rates. */
enum cwdp_enforcer {
	CWDP_ENFORCER_NONE,
	CWDP_ENFORCER_EDT, /* earliest departure times, kept by the qdisc fq */
	CWDP_ENFORCER_HTB, /* classes of the qdisc htb, by the priorities of packets */
};

/* Queue pairs that agree with it in every bit of the masks are in its slice. */
struct cwdp_slice_rule {
	__be32 addr[4]; /* destination, IPv4 as ::ffff:a.b.c.d */
	__be32 addr_mask[4];
	__u32 qpn;
	__u32 qpn_mask;
	__u32 job; /* of struct cwdp_job; 0: any, or none */
	__u8 dscp;
	__u8 dscp_mask;
	__u16 slice; /* 0: no more rules follow */
	char job_name[CWDP_NAME_BYTES];
};

struct cwdp_slice_list {
	struct cwdp_slice_rule rules[CWDP_SLICE_RULES];
};

/* The writer fills the list that is not active, then switches, then raises the generation. */
struct cwdp_slice_table {
	struct cwdp_slice_list lists[2];
	__u32 active;
	__u32 enforcer; /* enum cwdp_enforcer */
	__u64 link_bps;
	__u32 probe_class; /* of the agent's probes; 0: none */
	__u32 managed;     /* by the agent's desired state; otherwise by hand */
};

/* The job of a queue pair: the CRC-32 of its name. */
struct cwdp_job {
	__u32 job;
	__u32 managed; /* by the agent's desired state; otherwise by hand */
};

/* A slice: what is wanted, and in a cache line of its own what packets move. Rates are of Ethernet frames
 * without FCS; in units of 2^-18 ns per byte where packets are given times, 0 where classes hold the rate. */
struct cwdp_slice {
	char name[CWDP_NAME_BYTES]; /* empty: free */
	__u64 guaranteed_bps;
	__u64 ceiling_bps;
	__u64 qp_bps;   /* of each queue pair; 0: as the slice allows */
	__u32 priority; /* 0 is served first */
	__u32 unused;
	__u64 departure_ns; /* earliest, of the next packet */
	__u64 bytes;        /* that were given times, but for some of two CPUs at one instant */
	__u64 lease_ns;     /* until when pace_q18 holds, then fair_q18 */
	__u32 pace_q18;
	__u32 fair_q18;
	__u32 qp_pace_q18; /* of each queue pair; 0: as the slice allows */
	__u32 class_id;    /* of htb, for skb->priority; 0: none */
	__u32 leaves;      /* classes below it, numbered from class_id + 1, one a queue pair; 0: none */
	__u32 next_leaf;
	__u64 unused_too[2];
};

/* What the pinned tree was made from. */
struct cwdp_meta {
	__u32 abi;
	__u32 ifindex;
	enum cwdp_xdp_mode xdp_mode;
	__u16 metadata; /* CWDP_METADATA_...; 0 before the first probe has come in */
	__u16 offloads; /* switched off for as long as this is loaded; a bit each */
	char tag[16];   /* start of the object file's SHA-256, in hex, not terminated */
};

/* Types and constants that no map mentions, so that the object's BTF has them. */
struct cwdp_abi_types {
	struct cwdp_probe_packet probe_packet;
	enum cwdp_constant constant;
	enum cwdp_reason reason;
	enum cwdp_probe_kind probe_kind;
	enum cwdp_slot_state slot_state;
	enum cwdp_sender sender;
	enum cwdp_position position;
	enum cwdp_nak nak;
	enum cwdp_steer_flag steer_flag;
	enum cwdp_path_state path_state;
	enum cwdp_direction direction;
	enum cwdp_event_kind event_kind;
	enum cwdp_enforcer enforcer;
};
