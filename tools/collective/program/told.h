/* SPDX-License-Identifier: Apache-2.0 */
/* What the program says: JSON lines on standard output of what was done; and why it gives up. */
#pragma once

#include <stdint.h>
#include <stdio.h>

/* Exit statuses. */
#define FAILED    1
#define WRONG_USE 2

/* CLOCK_MONOTONIC, as the plug-in has it. */
uint64_t now_ns(void);

/* Which rank it is, for messages. */
void told_rank(int rank);

/* One line, all of it or none. */
__attribute__((format(printf, 1, 2))) void tell(const char *format, ...);

/* Says on standard error what was wrong, and ends the program. */
__attribute__((format(printf, 2, 3))) _Noreturn void give_up(int status, const char *format, ...);
