/* SPDX-License-Identifier: Apache-2.0 */
/* One end of RDMA WRITEs over reliable queue pairs, by verbs that are looked up as NCCL does.
 *
 *   as_nccl DEVICE GID_INDEX PORT MESSAGES BYTES FLOW_LABEL PAIRS [ADDRESS]
 *
 * Without an address it listens at PORT of TCP, where the ends meet, and is written to; the flow label is
 * that of the other end. Ends with a line on standard output: how many messages were written, or what failed.
 *
 * Without messages either end says how many queue pairs are connected, and does as it is told (told.h).
 */
#include "ends.h"
#include "told.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static int met(void)
{
	const int yes = 1;
	const char *address = transfer.address ? transfer.address : "127.0.0.1";
	struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(transfer.port)};
	int sock = socket(AF_INET, SOCK_STREAM, 0);
	inet_pton(AF_INET, address, &where.sin_addr);
	if (transfer.address) {
		if (connect(sock, (struct sockaddr *)&where, sizeof(where)))
			fail("connect");
		return sock;
	}
	setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(sock, (struct sockaddr *)&where, sizeof(where)) || listen(sock, 1))
		fail("listen");
	return accept(sock, NULL, NULL);
}

static void exchange(int sock, const struct end *here, struct end *there)
{
	if (write(sock, here, sizeof(*here)) != sizeof(*here) ||
	    recv(sock, there, sizeof(*there), MSG_WAITALL) != sizeof(*there))
		fail("the other end is gone");
}

/* Each queue pair has as many messages under way as it may, those of all together counted. */
static void write_all(void)
{
	uint64_t posted = 0, done = 0;
	while (done < transfer.messages) {
		for (uint32_t i = 0; i < transfer.count && posted < transfer.messages; i++)
			for (; transfer.pairs[i].under_way < DEPTH && posted < transfer.messages; posted++)
				ends_post(i);
		done += ends_complete();
	}
}

static void stay(void)
{
	printf("%u\n", transfer.count);
	fflush(stdout);
	told();
}

int main(int argc, char **argv)
{
	if (argc < 8) {
		fprintf(stderr,
			"usage: as_nccl DEVICE GID_INDEX PORT MESSAGES BYTES FLOW_LABEL PAIRS [ADDRESS]\n");
		return 2;
	}
	struct end unused;
	transfer.device = argv[1];
	transfer.gid_index = (uint8_t)atoi(argv[2]);
	transfer.port = (uint16_t)atoi(argv[3]);
	transfer.messages = strtoull(argv[4], NULL, 10);
	transfer.bytes = (uint32_t)atoi(argv[5]);
	transfer.flow_label = argc > 8 ? (uint32_t)atoi(argv[6]) : 0;
	transfer.count = (uint32_t)atoi(argv[7]) % (MOST_PAIRS + 1);
	transfer.address = argv[8];
	signal(SIGPIPE, SIG_IGN);
	lib_find();
	ends_make();
	int sock = met();
	for (uint32_t i = 0; i < transfer.count; i++)
		exchange(sock, &transfer.pairs[i].here, &transfer.pairs[i].there);
	for (uint32_t i = 0; i < transfer.count; i++)
		ends_connect(&transfer.pairs[i]);
	exchange(sock, &transfer.pairs[0].here, &unused); /* both are ready */
	if (!transfer.messages) {
		stay();
		return 0;
	}
	if (transfer.address)
		write_all();
	exchange(sock, &transfer.pairs[0].here, &unused); /* all is written */
	printf("%llu messages\n", (unsigned long long)transfer.messages);
	return 0;
}
