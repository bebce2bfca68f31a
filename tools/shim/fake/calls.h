/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the fake libibverbs: what it was told to do. */
#pragma once

#include "fake.h"

/* The error with which this call of ibv_modify_qp is to fail; 0: none. */
int calls_failing(void);

bool calls_refuse_labels(void);
int calls_glances(void);
bool calls_hold_draining(void);
enum fake_far_end calls_far_ends(void);
void calls_await_destroy(void);
void calls_note(const struct fake_call *call);
