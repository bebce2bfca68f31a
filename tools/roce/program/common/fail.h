/* SPDX-License-Identifier: Apache-2.0 */
/* Ending with a message: exit status 2 for a wrong plan, 1 for what the system refused. */
#pragma once

#include <stddef.h>

/* Says `what` and the reason in errno on standard error, and exits with 1. */
void fail_system(const char *what) __attribute__((noreturn));

/* Says what is wrong with a plan on standard error, and exits with 2. */
void fail_plan(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Returns memory that was asked for; exits if there was none. */
void *need(void *memory);
