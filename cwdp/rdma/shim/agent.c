/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"

#include "guard.h"
#include "known.h"
#include "move.h"
#include "table.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES   (256 << 10)
#define FIRST_WAIT_NS 10000000
#define RETRY_MS      100
#define SLOWEST_MS    5000

union message {
	struct cwdp_verbs_head head;
	struct cwdp_verbs_hello hello;
	struct cwdp_verbs_qp qp;
	struct cwdp_verbs_move move;
	struct cwdp_verbs_moved moved;
};

/* What was not sent yet, as the socket was full; nothing is taken in meanwhile. */
struct outbox {
	union message message;
	size_t bytes; /* 0: nothing */
};

static struct sockaddr_un where = {.sun_family = AF_UNIX};
static bool is_off;
static _Atomic uint32_t refused;
static _Atomic bool runs;
static int sock = -1, wakes = -1;
static bool is_settled; /* a table is there, or no agent */
static pthread_cond_t settled = PTHREAD_COND_INITIALIZER;

static void settle(void)
{
	pthread_mutex_lock(&guard);
	is_settled = true;
	pthread_cond_broadcast(&settled);
	pthread_mutex_unlock(&guard);
}

static bool connect_agent(void)
{
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return false;
	if (!connect(sock, (const struct sockaddr *)&where, sizeof(where)))
		return true;
	close(sock);
	sock = -1;
	return false;
}

/* False where the agent is gone. */
static bool flush(struct outbox *out)
{
	if (!out->bytes)
		return true;
	ssize_t sent = send(sock, &out->message, out->bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0)
		return errno == EAGAIN || errno == EINTR || errno == ENOBUFS;
	out->bytes = 0;
	return true;
}

static void say_hello(struct outbox *out)
{
	out->message.hello = (struct cwdp_verbs_hello){
		.head = {.magic = CWDP_VERBS_MAGIC, .kind = CWDP_VERBS_HELLO},
		.version = CWDP_VERBS_VERSION,
		.refused = atomic_load(&refused),
		.untold = known_forgotten(),
	};
	out->bytes = sizeof(out->message.hello);
}

/* Tells of queue pairs as long as the socket takes it. */
static bool tell(struct outbox *out)
{
	bool has_path;
	while (!out->bytes && known_next_untold(&out->message.qp, &has_path)) {
		out->message.head.kind = has_path ? CWDP_VERBS_QP_RTR : CWDP_VERBS_QP_STATE;
		out->bytes = has_path ? sizeof(out->message.qp) : sizeof(out->message.head);
		if (!flush(out))
			return false;
	}
	return true;
}

static void obey(const struct cwdp_verbs_move *order, struct outbox *out)
{
	uint64_t began_ns = move_now_ns();
	struct cwdp_verbs_moved moved = {.head = order->head, .number = order->number, .error = ENOENT};
	struct known *known = known_hold_named(&order->head);
	if (known) {
		enum cwdp_verbs_actuator by;
		moved.error = (uint32_t)move(known, order, &by);
		moved.actuator = by;
		moved.head.state = known->name.state;
		known_release(known);
	}
	moved.head.kind = CWDP_VERBS_MOVED;
	moved.took_ns = move_now_ns() - began_ns;
	out->message.moved = moved;
	out->bytes = sizeof(moved);
}

static int passed_fd(struct msghdr *header)
{
	int fd = -1;
	for (struct cmsghdr *each = CMSG_FIRSTHDR(header); each; each = CMSG_NXTHDR(header, each))
		if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(each), sizeof(fd));
	return fd;
}

/* Takes one message in. False where the agent is gone, or speaks otherwise. */
static bool hear(struct outbox *out)
{
	union message message;
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec into = {.iov_base = &message, .iov_len = sizeof(message)};
	struct msghdr header = {
		.msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t bytes = recvmsg(sock, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (bytes < 0)
		return errno == EAGAIN || errno == EINTR;
	int fd = passed_fd(&header);
	bool is_ours = bytes >= (ssize_t)sizeof(message.head) && message.head.magic == CWDP_VERBS_MAGIC;
	if (is_ours && message.head.kind == CWDP_VERBS_TABLE && fd >= 0 && table_take(fd))
		settle();
	else if (is_ours && message.head.kind == CWDP_VERBS_MOVE && bytes == sizeof(message.move))
		obey(&message.move, out);
	if (fd >= 0)
		close(fd);
	return is_ours;
}

static void drain_wakes(void)
{
	uint64_t count;
	while (read(wakes, &count, sizeof(count)) > 0)
		;
}

static void talk(void)
{
	struct outbox out;
	say_hello(&out);
	known_connected(true);
	while (flush(&out) && tell(&out)) {
		struct pollfd polled[] = {
			{.fd = sock, .events = out.bytes ? POLLOUT : POLLIN},
			{.fd = wakes, .events = POLLIN},
		};
		if (poll(polled, 2, -1) < 0)
			continue;
		drain_wakes();
		if (polled[0].revents & ~POLLOUT && !out.bytes && !hear(&out))
			break;
		if (polled[0].revents & (POLLERR | POLLHUP) && out.bytes)
			break;
	}
	known_connected(false);
}

static void *serve(void *unused)
{
	long wait_ms = RETRY_MS;
	for (;;) {
		if (connect_agent()) {
			talk();
			close(sock);
			sock = -1;
			wait_ms = RETRY_MS;
		}
		settle();
		const struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000};
		nanosleep(&wait, NULL);
		wait_ms = wait_ms * 2 < SLOWEST_MS ? wait_ms * 2 : SLOWEST_MS;
	}
	return unused;
}

/* With no signal of the program's delivered to it. */
static bool begin(void)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, before;
	wakes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wakes < 0 || pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&thread, &attr, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return !failed;
}

static void await_table(void)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += FIRST_WAIT_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&guard);
	while (!is_settled)
		if (pthread_cond_timedwait(&settled, &guard, &until))
			break;
	pthread_mutex_unlock(&guard);
}

void agent_start(void)
{
	if (atomic_exchange(&runs, true))
		return;
	if (begin())
		await_table();
}

void agent_wake(void)
{
	const uint64_t one = 1;
	if (wakes >= 0 && write(wakes, &one, sizeof(one)) < 0)
		return; /* it is awake already */
}

void agent_count_refused(void)
{
	atomic_fetch_add(&refused, 1);
}

bool agent_wanted(void)
{
	return !is_off;
}

static void before_fork(void)
{
	pthread_mutex_lock(&guard);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&guard);
}

/* The thread and its queue pairs are the parent's. A child that opens a device begins anew. */
static void in_child(void)
{
	if (sock >= 0)
		close(sock);
	if (wakes >= 0)
		close(wakes);
	sock = wakes = -1;
	known_clear();
	is_settled = false;
	atomic_store(&runs, false);
	pthread_mutex_unlock(&guard);
}

__attribute__((constructor)) static void load(void)
{
	const char *said = secure_getenv("CWDP_VERBS");
	is_off = said && !strcmp(said, "off");
	const char *path = said && said[0] == '/' ? said : CWDP_VERBS_SOCKET;
	strncpy(where.sun_path, path, sizeof(where.sun_path) - 1);
	pthread_atfork(before_fork, in_parent, in_child);
}
