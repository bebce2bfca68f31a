/* SPDX-License-Identifier: Apache-2.0 */
#include "commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/fail.h"

#define LINE_BYTES 128

static void obey(struct host *host, const char *line)
{
	uint64_t start_ns, until_ns;

	if (strcmp(line, "stop") == 0) {
		host->stopped = true;
	} else if (strcmp(line, "finish") == 0) {
		host->until_ns = 0;
	} else if (sscanf(line, "start %" SCNu64 " %" SCNu64, &start_ns, &until_ns) == 2) {
		host->start_ns = start_ns;
		host->snapshot_ns = start_ns;
		host->until_ns = until_ns ? until_ns : UINT64_MAX;
	} else {
		fail_plan("%s is not a command", line);
	}
}

void command_read(struct host *host)
{
	static char line[LINE_BYTES];
	static size_t length;
	ssize_t got = read(STDIN_FILENO, line + length, sizeof(line) - length - 1);
	char *end;

	if (got <= 0) {
		host->stopped = true;
		return;
	}
	length += got;
	line[length] = '\0';
	while ((end = strchr(line, '\n'))) {
		*end = '\0';
		obey(host, line);
		length -= end + 1 - line;
		memmove(line, end + 1, length + 1);
	}
	if (length == sizeof(line) - 1)
		fail_plan("a command is too long");
}
