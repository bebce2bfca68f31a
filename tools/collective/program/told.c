/* SPDX-License-Identifier: Apache-2.0 */
#include "told.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

static int own_rank = -1;

uint64_t now_ns(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

void told_rank(int rank)
{
	own_rank = rank;
}

void tell(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
}

/* Other threads may be in the middle of anything: only what was told is written out. */
void give_up(int status, const char *format, ...)
{
	va_list arguments;
	fflush(stdout);
	if (own_rank < 0)
		fprintf(stderr, "error: ");
	else
		fprintf(stderr, "error: rank %d: ", own_rank);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	_Exit(status);
}
