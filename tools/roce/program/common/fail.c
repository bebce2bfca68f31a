/* SPDX-License-Identifier: Apache-2.0 */
#include "common/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fail_system(const char *what)
{
	fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
	exit(1);
}

void fail_plan(const char *format, ...)
{
	va_list arguments;

	fputs("error: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(2);
}

void *need(void *memory)
{
	if (!memory)
		fail_system("memory");
	return memory;
}
