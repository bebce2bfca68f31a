/* SPDX-License-Identifier: Apache-2.0 */
/* What agent and shim tell each other: the table, and messages over a SOCK_SEQPACKET socket. Host byte order.
 *
 * cwdp/rdma/shimwire.py has the same in Python; a test holds the two together. A change of meaning raises
 * CWDP_VERBS_VERSION, and the two sides of a socket refuse each other's other versions.
 */
#pragma once

#include <stdint.h>

#define CWDP_VERBS_SOCKET     "/run/cwdp-verbs/verbs.sock"
#define CWDP_VERBS_MAGIC      0x62765743u
#define CWDP_VERBS_VERSION    3
#define CWDP_VERBS_CHOICES    16
#define CWDP_VERBS_NAME_BYTES 64
#define CWDP_VERBS_COUNTS     63
#define CWDP_VERBS_UNCOUNTED  UINT32_MAX

/* Of a table. */
#define CWDP_VERBS_MOST_BYTES   (1u << 28)
#define CWDP_VERBS_MOST_SOURCES 4096
#define CWDP_VERBS_MOST_BITS    20
#define CWDP_VERBS_STEPS        256

/* The table: this, `sources`, then 1 << `route_bits` routes, found by hash, with none behind the first free
 * one, and none further than CWDP_VERBS_STEPS - 1 behind its place.
 */
struct cwdp_verbs_table {
	uint32_t magic;
	uint32_t version;
	uint64_t number; /* a newer table's is higher */
	uint32_t sources;
	uint32_t route_bits;
};

/* A GID that queue pairs send from, as programs name it. */
struct cwdp_verbs_source {
	char device[CWDP_VERBS_NAME_BYTES];
	uint32_t port;
	uint32_t gid_index;
	uint8_t gid[16];
};

/* The queue pairs between two GIDs are spread over `choices` paths; none where it is 0. In a subnet of
 * InfiniBand ports stand there by their LIDs without path bits: 14 zeros, then the LID, its high byte first.
 */
struct cwdp_verbs_route {
	uint8_t src[16];
	uint8_t dst[16];
	uint32_t used;
	uint32_t lmc; /* of the destination; between LIDs only */
	uint32_t choices;
	uint32_t path[CWDP_VERBS_CHOICES];  /* flow labels, or between LIDs those of the destination */
	uint32_t up_to[CWDP_VERBS_CHOICES]; /* running sums of the shares; the last is UINT32_MAX */
};

enum cwdp_verbs_kind {
	CWDP_VERBS_HELLO = 1, /* from the shim: it is there */
	CWDP_VERBS_TABLE,     /* from the agent, with a sealed memfd */
	CWDP_VERBS_QP_RTR,    /* from the shim: a queue pair has a path, or another one */
	CWDP_VERBS_QP_STATE, /* from the shim, the head alone: one with a path is in another state, or gone */
	CWDP_VERBS_MOVE,     /* from the agent: have it take another path */
	CWDP_VERBS_MOVED,    /* from the shim: what came of that */
	CWDP_VERBS_SENT,     /* from the shim: what queue pairs were given to send, once a second */
};

enum cwdp_verbs_actuator {
	CWDP_VERBS_CREATE_ONLY,
	CWDP_VERBS_MLX5DV,
	CWDP_VERBS_BNXT,
	CWDP_VERBS_SQD,
	CWDP_VERBS_APM,
};

/* What a MOVE is to do. The last two are the steps of automatic path migration (IBTA volume 1, 17.2.8), each
 * of them for both ends before the next for either.
 */
enum cwdp_verbs_how {
	CWDP_VERBS_AT_ONCE,   /* by what the device has for that */
	CWDP_VERBS_MAY_DRAIN, /* or else by draining it */
	CWDP_VERBS_LOAD,      /* its alternate path, and have it be armed once the far end has, too */
	CWDP_VERBS_MIGRATE, /* to the path that was loaded, unless the far end's migration has taken it there
			     */
};

#define CWDP_VERBS_GONE 255 /* a state: it is destroyed */

/* Every message begins so. A queue pair is named by device and QPN. */
struct cwdp_verbs_head {
	uint32_t magic;
	uint32_t kind;
	char device[CWDP_VERBS_NAME_BYTES];
	uint32_t qpn;
	uint32_t state; /* IBV_QPS_... */
};

struct cwdp_verbs_hello {
	struct cwdp_verbs_head head;
	uint32_t version;
	uint32_t refused; /* how often a device refused the table's path, since it was loaded */
	uint64_t untold;  /* queue pairs that had a path and were gone before an agent had heard of them */
	char job[CWDP_VERBS_NAME_BYTES]; /* a variable of its environment that names its job, NAME=VALUE */
};

struct cwdp_verbs_qp {
	struct cwdp_verbs_head head;
	uint32_t port;
	uint32_t gid_index;
	uint32_t dest_qpn;
	uint32_t flow_label; /* in force; 0: the device's own choice */
	uint8_t dst[16];
	uint32_t by_table;    /* whether the table gave it */
	uint32_t actuator;    /* how it can be moved while it sends, by enum cwdp_verbs_actuator */
	uint32_t count_place; /* of its count, in cwdp_verbs_sent; or CWDP_VERBS_UNCOUNTED */
	uint32_t lid; /* of its port without path bits, where that is InfiniBand's; else this and the next are
			 0 */
	uint32_t dlid; /* in force */
	uint32_t src_path_bits;
};

/* Counts that have changed, by their places: bytes that were posted since the queue pair was made. */
struct cwdp_verbs_sent {
	struct cwdp_verbs_head head;
	uint32_t count;
	uint32_t place[CWDP_VERBS_COUNTS];
	uint64_t bytes[CWDP_VERBS_COUNTS];
};

struct cwdp_verbs_move {
	struct cwdp_verbs_head head;
	uint64_t number;      /* of the order */
	uint64_t deadline_ns; /* CLOCK_MONOTONIC; nothing is begun later */
	uint32_t path;        /* a source port, or a DLID */
	uint32_t lmc;         /* of the destination, with a DLID */
	uint32_t how;         /* of enum cwdp_verbs_how */
};

/* `error` is an errno; 0: it is done, and a QP_RTR of that path follows only for a new agent. ENOENT: there
 * is no such queue pair; EBUSY: the program calls with it, or has an alternate path of its own; ENOTCONN:
 * it is not in RTS; ETIMEDOUT: the deadline was over; EAGAIN: it is not armed yet; EALREADY: its device has
 * gone over to another path by itself, of which a QP_RTR tells; EOPNOTSUPP: its device has no way; EINVAL: no
 * such port, or a LID that is not the ends' or was not loaded; others: the device's.
 */
struct cwdp_verbs_moved {
	struct cwdp_verbs_head head;
	uint64_t number;
	uint64_t took_ns;
	uint32_t error;
	uint32_t actuator;
};
