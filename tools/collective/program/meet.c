/* SPDX-License-Identifier: Apache-2.0 */
#include "meet.h"

#include "told.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC    0x63776470u
#define AGAIN_US 20000

struct greeting {
	uint32_t magic;
	int32_t rank;
	uint64_t hash;
};

static int rank, ranks, timeout_s;
static int sockets[MOST_RANKS]; /* of rank 0 by ranks; of the others the first only */
static uint64_t deadline_ns;

static void limit(int sock)
{
	struct timeval most = {.tv_sec = timeout_s};
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

static _Noreturn void lost(int other)
{
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		give_up(FAILED, "rank %d has said nothing for %d s", other, timeout_s);
	give_up(FAILED, "rank %d has gone", other);
}

static void say(int other, const void *what, size_t bytes)
{
	while (bytes) {
		ssize_t sent = send(sockets[other], what, bytes, MSG_NOSIGNAL);
		if (sent <= 0)
			lost(other);
		what = (const char *)what + sent;
		bytes -= (size_t)sent;
	}
}

static void hear(int other, void *what, size_t bytes)
{
	while (bytes) {
		errno = 0;
		ssize_t heard = recv(sockets[other], what, bytes, 0);
		if (heard <= 0)
			lost(other);
		what = (char *)what + heard;
		bytes -= (size_t)heard;
	}
}

static struct sockaddr_in where(const struct options *options)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
	if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1)
		give_up(WRONG_USE, "--rendezvous has %s; it must be an IPv4 address", options->host);
	return address;
}

static void take_in(int listener, const struct options *options, int came)
{
	struct pollfd ready = {.fd = listener, .events = POLLIN};
	uint64_t now = now_ns();
	int left_ms = now < deadline_ns ? (int)((deadline_ns - now) / 1000000) : 0;
	if (poll(&ready, 1, left_ms) != 1)
		give_up(FAILED, "%d of %d other ranks came to %s:%d within %d s", came, ranks - 1,
			options->host, options->port, timeout_s);
	int sock = accept(listener, NULL, NULL);
	struct greeting greeting = {0};
	limit(sock);
	if (recv(sock, &greeting, sizeof(greeting), MSG_WAITALL) != sizeof(greeting) ||
	    greeting.magic != MAGIC)
		give_up(FAILED, "what came to %s:%d is no rank", options->host, options->port);
	if (greeting.hash != options_hash(options))
		give_up(FAILED, "rank %d was told to do something else: give all ranks the same options",
			greeting.rank);
	if (greeting.rank <= 0 || greeting.rank >= ranks || sockets[greeting.rank] >= 0)
		give_up(FAILED, "there are two of rank %d", greeting.rank);
	sockets[greeting.rank] = sock;
}

static void take_all_in(const struct options *options)
{
	const int yes = 1;
	struct sockaddr_in address = where(options);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, MOST_RANKS))
		give_up(FAILED, "cannot listen at %s:%d: %s", options->host, options->port, strerror(errno));
	for (int came = 0; came < ranks - 1; came++)
		take_in(listener, options, came);
	close(listener);
}

static void go(const struct options *options)
{
	struct sockaddr_in address = where(options);
	struct greeting greeting = {MAGIC, rank, options_hash(options)};
	for (;;) {
		sockets[0] = socket(AF_INET, SOCK_STREAM, 0);
		if (!connect(sockets[0], (struct sockaddr *)&address, sizeof(address)))
			break;
		if (now_ns() > deadline_ns)
			give_up(FAILED, "rank 0 is not at %s:%d: %s", options->host, options->port,
				strerror(errno));
		close(sockets[0]);
		usleep(AGAIN_US);
	}
	limit(sockets[0]);
	say(0, &greeting, sizeof(greeting));
}

void meet(const struct options *options)
{
	rank = options->rank;
	ranks = options->ranks;
	timeout_s = options->timeout_s;
	deadline_ns = now_ns() + (uint64_t)timeout_s * 1000000000u;
	for (int i = 0; i < MOST_RANKS; i++)
		sockets[i] = -1;
	if (rank)
		go(options);
	else
		take_all_in(options);
}

void meet_gather(const void *mine, size_t bytes, void *all)
{
	if (rank) {
		say(0, mine, bytes);
		hear(0, all, bytes * (size_t)ranks);
		return;
	}
	memcpy(all, mine, bytes);
	for (int other = 1; other < ranks; other++)
		hear(other, (char *)all + (size_t)other * bytes, bytes);
	for (int other = 1; other < ranks; other++)
		say(other, all, bytes * (size_t)ranks);
}

/* Who has come to its end says so, and is no loss: something is there to be read. */
void meet_look(void)
{
	char byte;
	for (int other = 0; other < (rank ? 1 : ranks); other++) {
		errno = 0;
		if (sockets[other] >= 0 && recv(sockets[other], &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0 &&
		    errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			give_up(FAILED, "rank %d has gone", other);
	}
}
