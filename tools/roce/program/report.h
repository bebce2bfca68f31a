/* SPDX-License-Identifier: Apache-2.0 */
/* JSON on standard output, an object a line. */
#pragma once

#include "host.h"

/* Says no more than that something has happened. */
void report_event(const char *name);

/* What has been delivered and acknowledged so far. */
void report_snapshot(const struct host *host, uint64_t now_ns);

/* An iteration that a rank has completed now, and when each step was ready and began. */
void report_iteration(const struct rank *rank, uint64_t now_ns);

/* All counters, at the end. */
void report_result(const struct host *host);
