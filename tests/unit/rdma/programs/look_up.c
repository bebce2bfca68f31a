/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the table of standard input's first line, a path of a file; then for each line DEVICE PORT INDEX GID TIMES says
 * the flow labels that so many queue pairs get.
 */
#include "table.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

int main(int count, char **names)
{
	char device[128], text[64];
	unsigned int port, gid_index, times, byte;
	uint8_t dst[16];
	int fd = count > 1 ? open(names[1], O_RDONLY) : -1;
	if (fd < 0 || !table_take(fd))
		return 1;
	while (scanf("%127s %u %u %63s %u", device, &port, &gid_index, text, &times) == 5) {
		for (int i = 0; i < 16; i++) {
			if (sscanf(text + 2 * i, "%2x", &byte) != 1)
				return 2;
			dst[i] = (uint8_t)byte;
		}
		for (unsigned int i = 0; i < times; i++)
			printf("%u ", table_flow_label(device, port, gid_index, dst));
		printf("\n");
	}
	return 0;
}
