/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"

#include "drain.h"
#include "guard.h"
#include "known.h"
#include "move.h"
#include "posts/count.h"
#include "program/job.h"
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES   (256 << 10)
#define FIRST_WAIT_NS 10000000
#define RETRY_MS      100
#define SLOWEST_MS    5000
#define LOOK_ROUND_MS 1000
#define COUNTS_MS     1000
#define RESUME_MS     5

union message {
	struct cwdp_verbs_head head;
	struct cwdp_verbs_hello hello;
	struct cwdp_verbs_qp qp;
	struct cwdp_verbs_move move;
	struct cwdp_verbs_moved moved;
	struct cwdp_verbs_sent sent;
};

/* What was not sent yet, as the socket was full; nothing is taken in meanwhile. */
struct outbox {
	union message message;
	size_t bytes;     /* 0: nothing */
	bool is_counting; /* there are counts of this round yet */
	uint64_t counted_ns;
};

static struct sockaddr_un where = {.sun_family = AF_UNIX};
static bool is_off, counts;
static char job[CWDP_VERBS_NAME_BYTES];
static _Atomic uint32_t refused;
static _Atomic bool runs;
static int sock = -1; /* changed with the guard held, so that a child can close what is its parent's */
static _Atomic int wakes = -1;
static bool is_settled; /* a table is there, or no agent */
static pthread_cond_t settled;

static void settle(void)
{
	pthread_mutex_lock(&guard);
	is_settled = true;
	pthread_cond_broadcast(&settled);
	pthread_mutex_unlock(&guard);
}

static void disconnect(void)
{
	pthread_mutex_lock(&guard);
	close(sock);
	sock = -1;
	pthread_mutex_unlock(&guard);
}

static bool connect_agent(void)
{
	pthread_mutex_lock(&guard);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	pthread_mutex_unlock(&guard);
	if (sock < 0)
		return false;
	if (!connect(sock, (const struct sockaddr *)&where, sizeof(where)))
		return true;
	disconnect();
	return false;
}

/* False where the agent is gone. */
static bool flush(struct outbox *out)
{
	if (!out->bytes)
		return true;
	ssize_t sent = send(sock, &out->message, out->bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (sent < 0)
		return errno == EAGAIN || errno == EINTR;
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
	memcpy(out->message.hello.job, job, sizeof(job));
	out->bytes = sizeof(out->message.hello);
}

/* Tells of queue pairs as long as the socket takes it. */
static bool tell(struct outbox *out)
{
	while (!out->bytes && known_next_untold(&out->message.qp)) {
		bool has_path = out->message.head.kind == CWDP_VERBS_QP_RTR;
		out->bytes = has_path ? sizeof(out->message.qp) : sizeof(out->message.head);
		if (!flush(out))
			return false;
	}
	return true;
}

/* Once a round, what queue pairs were given to send, as long as the socket takes it. */
static bool tell_counts(struct outbox *out)
{
	if (!out->is_counting && now_ns() - out->counted_ns >= COUNTS_MS * 1000000ull) {
		out->is_counting = true;
		out->counted_ns = now_ns();
	}
	while (out->is_counting && !out->bytes) {
		out->is_counting = count_next(&out->message.sent);
		out->bytes = out->is_counting ? sizeof(out->message.sent) : 0;
		if (!flush(out))
			return false;
	}
	return true;
}

static int passed_fd(struct msghdr *header)
{
	int fd = -1;
	for (struct cmsghdr *each = CMSG_FIRSTHDR(header); each; each = CMSG_NXTHDR(header, each))
		if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(each), sizeof(fd));
	return fd;
}

/* Takes one message in; what is none of ours passes by. False where the agent is gone. */
static bool hear(struct outbox *out)
{
	union message message;
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec into = {.iov_base = &message, .iov_len = sizeof(message)};
	struct msghdr header = {
		.msg_iov = &into,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = CMSG_LEN(sizeof(int)), /* of one descriptor; the space has room for two */
	};
	ssize_t bytes = recvmsg(sock, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (bytes <= 0)
		return bytes && (errno == EAGAIN || errno == EINTR);
	int fd = passed_fd(&header);
	bool is_ours = bytes >= (ssize_t)sizeof(message.head) && message.head.magic == CWDP_VERBS_MAGIC;
	if (is_ours && message.head.kind == CWDP_VERBS_TABLE && fd >= 0 && table_take(fd))
		settle();
	if (is_ours && message.head.kind == CWDP_VERBS_MOVE && bytes == sizeof(message.move)) {
		out->message.moved = move(&message.move);
		out->bytes = sizeof(out->message.moved);
	}
	if (fd >= 0)
		close(fd);
	return true;
}

/* A process whose main thread has ended lasts as long as its other threads: not for the sake of this one. */
static bool is_alone(void)
{
	struct statx tasks;
	char line[512];
	/* By syscall, as older glibcs have no stat that can be linked with. */
	if (syscall(SYS_statx, AT_FDCWD, "/proc/self/task", 0, STATX_NLINK, &tasks) < 0 ||
	    tasks.stx_nlink > 2 + 2)
		return false;
	int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd >= 0 ? read(fd, line, sizeof(line) - 1) : -1;
	if (fd >= 0)
		close(fd);
	line[bytes > 0 ? bytes : 0] = '\0';
	const char *name_end = strrchr(line, ')');
	return name_end && !strncmp(name_end, ") Z", 3);
}

static void talk(void)
{
	struct outbox out = {.is_counting = false};
	uint64_t count;
	say_hello(&out);
	known_connected(true);
	count_anew();
	while (flush(&out) && tell(&out) && tell_counts(&out)) {
		struct pollfd polled[] = {
			{.fd = sock, .events = out.bytes ? POLLOUT : POLLIN},
			{.fd = wakes, .events = POLLIN},
		};
		int ready = poll(polled, 2, drain_resume() ? RESUME_MS : LOOK_ROUND_MS);
		if (!ready && is_alone())
			break;
		if (ready <= 0)
			continue;
		if (polled[1].revents && read(wakes, &count, sizeof(count)) < 0 && errno != EAGAIN)
			break;
		if (polled[0].revents & ~POLLOUT && (out.bytes || !hear(&out)))
			break;
	}
	known_connected(false);
}

static void make_wakes(void)
{
	pthread_mutex_lock(&guard);
	wakes = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_unlock(&guard);
}

static void rest(long ms)
{
	while (ms > 0) {
		long step = drain_resume() && ms > RESUME_MS ? RESUME_MS : ms;
		const struct timespec wait = {.tv_sec = step / 1000, .tv_nsec = step % 1000 * 1000000};
		nanosleep(&wait, NULL);
		ms -= step;
	}
}

static void *serve(void *unused)
{
	long wait_ms = RETRY_MS;
	pthread_setname_np(pthread_self(), "cwdp-verbs");
	while (!is_alone()) {
		if (fcntl(wakes, F_GETFD) < 0) /* the program has closed it */
			make_wakes();
		if (connect_agent()) {
			uint64_t since_ns = now_ns();
			talk();
			disconnect();
			if (now_ns() - since_ns > SLOWEST_MS * 1000000ull)
				wait_ms = RETRY_MS;
		}
		settle();
		rest(wait_ms);
		wait_ms = wait_ms * 2 < SLOWEST_MS ? wait_ms * 2 : SLOWEST_MS;
	}
	return unused;
}

static bool begin_thread(size_t stack_bytes)
{
	pthread_attr_t attr;
	pthread_t thread;
	if (pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stack_bytes)
		pthread_attr_setstacksize(&attr, stack_bytes);
	int failed = pthread_create(&thread, &attr, serve, NULL);
	pthread_attr_destroy(&attr);
	return !failed;
}

/* With no signal of the program's delivered to it. Where the program's thread-local variables leave no room
 * in a small stack, it has one of the usual size.
 */
static bool begin(void)
{
	sigset_t all, before;
	make_wakes();
	if (wakes < 0)
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool has_begun = begin_thread(STACK_BYTES) || begin_thread(0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return has_begun;
}

static void await_table(void)
{
	struct timespec until;
	int cancelable;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += FIRST_WAIT_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	pthread_mutex_lock(&guard);
	while (!is_settled)
		if (pthread_cond_timedwait(&settled, &guard, &until))
			break;
	pthread_mutex_unlock(&guard);
	pthread_setcancelstate(cancelable, NULL);
}

void agent_start(void)
{
	if (atomic_load(&runs) || atomic_exchange(&runs, true))
		return;
	if (begin())
		await_table();
}

/* By syscall, as write is where a thread may be cancelled. Where it fails, the thread is awake already. */
void agent_wake(void)
{
	const uint64_t one = 1;
	if (known_has_news())
		syscall(SYS_write, (int)wakes, &one, sizeof(one));
}

void agent_count_refused(void)
{
	atomic_fetch_add(&refused, 1);
}

bool agent_wanted(void)
{
	return !is_off;
}

bool agent_wants_counts(void)
{
	return counts;
}

static void before_fork(void)
{
	pthread_mutex_lock(&guard);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&guard);
}

static void prepare_settled(void)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&settled, &attr);
	pthread_condattr_destroy(&attr);
}

/* The thread and its queue pairs are the parent's. A child that opens a device begins anew. */
static void in_child(void)
{
	if (sock >= 0)
		close(sock);
	if (wakes >= 0)
		close(wakes);
	sock = wakes = -1;
	known_after_fork();
	prepare_settled();
	is_settled = false;
	runs = false;
	pthread_mutex_unlock(&guard);
}

__attribute__((constructor)) static void load(void)
{
	const char *said = secure_getenv("CWDP_VERBS"), *count = secure_getenv("CWDP_VERBS_COUNT");
	is_off = said && !strcmp(said, "off");
	if (is_off)
		return;
	const char *path = said && said[0] == '/' ? said : CWDP_VERBS_SOCKET;
	strncpy(where.sun_path, path, sizeof(where.sun_path) - 1);
	counts = !count || strcmp(count, "off");
	name_job(job, sizeof(job));
	prepare_settled();
	pthread_atfork(before_fork, in_parent, in_child);
}
