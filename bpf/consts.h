/* SPDX-License-Identifier: GPL-2.0-only */
/* Numbers of the wire formats and the sizes of tables; an enum, so that BTF carries them to Python. */
#pragma once

enum cwdp_constant {
	CWDP_ABI = 7, /* of the pinned tree: maps, their layouts, their names */

	CWDP_ROCE_PORT = 4791, /* IBTA A17: UDP destination port of RoCEv2 */

	/* BTH opcodes 0xc0 to 0xff are left to manufacturers (IBTA 9.2.1). */
	CWDP_BTH_OPCODE = 0xd7,
	CWDP_BTH_QPN = 0x00c3d9, /* a queue pair that nobody owns */
	CWDP_BTH_PKEY = 0xffff,

	CWDP_PROBE_MAGIC = 0x43574450, /* "CWDP" */
	CWDP_PROBE_VERSION = 1,

	/* Set on the agent's sockets, so that all other packets pass without a look at their socket. It
	 * proves nothing: CAP_NET_RAW is enough to set it. */
	CWDP_MARK = 0x43574450,

	CWDP_SLOTS = 65536, /* probes under way or not yet read, a power of two */
	CWDP_KEYS = 2,      /* two cluster keys are valid during a rotation */

	CWDP_BOUND_UNSYNCED = 0xffffffffU,

	CWDP_TEST_CLOCK_STEP_BITS = 26, /* a step of a lab's clock takes 2^26 ns, 67 ms */

	/* UDP source ports of RoCEv2 (IBTA A17) lie above this. */
	CWDP_SPORT_MIN = 0xc000,
	CWDP_QPN_MAX = 0xffffff,
	CWDP_UDP_MAX = 9216, /* longest UDP datagram that is steered: a jumbo frame's */

	CWDP_QP_WAYS = 8,
	CWDP_QP_BUCKETS = 4096,    /* times CWDP_QP_WAYS queue pairs a direction, unless set otherwise */
	CWDP_QP_NEWCOMERS = 1024,  /* places given within 32 jiffies to queue pairs that nobody steers */
	CWDP_STEER_MAX = 65536,    /* queue pairs steered */
	CWDP_STEERED_QPNS = 16384, /* a power of two */
	CWDP_PATHS = 4096,         /* paths watched; number 0 means none */
	CWDP_DETOURS = 4096,       /* destinations for which there is a detour */
	CWDP_PULSE_SLOTS = 32768,  /* pulses under way or not yet read, a power of two */
	CWDP_SAMPLES = 65536,      /* data packets stamped and not yet read, a power of two */
	CWDP_BURSTS = 16384,       /* bursts that are over and not yet read, a power of two */
	CWDP_EVENTS = 1024,        /* last events of the dataplane, a power of two */
	CWDP_NAK_KINDS = 6,

	/* Data offset and flags (ACK, PSH) of a TCP probe, and its window: where the destination QPN lies. */
	CWDP_TCP_PROBE = 0x5018c3d9,
	CWDP_TCP_PROBE_SUM = 0xffff,    /* of its ports and its urgent pointer */
	CWDP_TCP_CONNS = 4096,          /* TCP connections steered; number 0 means none */
	CWDP_TCP_SUMS = 16384,          /* a power of two */
	CWDP_TCP_ANNOUNCED_MAX = 65536, /* connections of other hosts, and of this one */
	CWDP_TCP_RTO_MIN_US = 20000, /* of steered connections; more than their far ends delay an ACK for */
	CWDP_TCP_RTO_MIN_MAX_US = 100000, /* whatever queues delay */
	CWDP_TCP_DELACK_MAX_US = 10000,   /* two jiffies at least, so not where there are 100 a second */
	CWDP_TCP_LEASE_MS = 5000, /* after a confirmation a connection may bear the ports of its path */

	CWDP_SLICES = 256,      /* bandwidth slices; number 0 is all that is in none */
	CWDP_SLICE_RULES = 256, /* that say which queue pair is in which */
	CWDP_JOB_QPS = 65536,   /* queue pairs that are known to be of some job */
	CWDP_NAME_BYTES = 32,   /* names of slices and jobs, not terminated where they are as long */

	/* Whether the driver has room for metadata before a packet: detours can be taken in with it only. */
	CWDP_METADATA_HAS = 1,
	CWDP_METADATA_LACKS = 2,
};
