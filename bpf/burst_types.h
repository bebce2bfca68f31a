/* SPDX-License-Identifier: GPL-2.0-only */
/* Bursts of queue pairs: the one that is under way, and those that are over. */
#pragma once

#include "types.h"

/* The burst under way of one direction of a queue pair: when it began, and what had been counted by then. */
struct cwdp_burst_start {
	__u64 tag;      /* of its queue pair; 0: there is none */
	__s64 start_ns; /* on the timeline */
	__u64 packets;  /* of data */
	__u64 bytes;
	__u64 ce_marks;
	__u64 resent;
	__u32 naks;
	__u32 bound_ns;
	__u64 unused;
};

/* A burst that is over. Its last packet passed so many jiffies before it was closed, to a jiffy. */
struct cwdp_burst {
	__u64 number;    /* from 1; written last */
	__s64 start_ns;  /* both on the timeline */
	__s64 closed_ns; /* when it was seen to be over */
	__u64 packets;   /* of data */
	__u64 bytes;     /* of IP packets, acknowledgements among them */
	__u32 ce_marks;
	__u32 resent; /* egress: sent again; ingress: arrived again */
	__u32 naks;
	__u32 bound_ns; /* the larger one of both times */
	struct cwdp_qp_key key;
	__u16 direction; /* enum cwdp_direction */
	__u16 idle_jiffies;
};
