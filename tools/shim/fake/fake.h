/* SPDX-License-Identifier: Apache-2.0 */
/* What a program can have the fake libibverbs do, and what it was called with. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A call that reached the provider. `what` is the function's name without its prefix. */
struct fake_call {
	char what[16];
	uint32_t qpn;
	int mask;
	uint32_t state;
	uint32_t flow_label;
	uint32_t sport;
	int result;
	uint32_t dlid; /* of the path, or of the alternate one */
	uint32_t path_bits;
};

/* What the far end of a queue pair has done for automatic path migration. */
enum fake_far_end {
	FAKE_IS_SILENT,
	FAKE_IS_REARMED,
	FAKE_HAS_MIGRATED,
};

struct fake_controls {
	/* Takes up to `most` of the calls since the last time. */
	size_t (*take_calls)(struct fake_call *into, size_t most);

	/* The next `times` calls of ibv_modify_qp fail, after `skip` that do not. */
	void (*fail)(int error, int skip, int times);

	/* ibv_modify_qp to RTR refuses any flow label but 0, with EINVAL. */
	void (*refuse_labels)(bool refuse);

	/* After it goes to SQD, a queue pair is seen draining that many times. */
	void (*drain)(int glances);

	/* One that is seen draining refuses to leave SQD but for ERR or RESET, as Soft-RoCE does. */
	void (*hold_draining)(bool hold);

	/* ibv_destroy_qp waits meanwhile, as for events that the program has not acknowledged. */
	void (*block_destroy)(bool block);

	/* What the far ends of all queue pairs have done, as it is seen by the next query. */
	void (*far_ends)(int have);

	/* Calls are noted no longer. */
	void (*be_quiet)(void);

	/* Notes a call. */
	void (*note)(const struct fake_call *call);
};

/* Found by dlsym in the library. */
#define FAKE_CONTROLS "fake_controls"
