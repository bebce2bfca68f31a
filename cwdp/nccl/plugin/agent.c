/* SPDX-License-Identifier: Apache-2.0 */
#include "agent.h"

#include "../../rdma/shim/program/job.h"
#include "slots.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* A descriptor that was ours when we got it: a program may close those that are not its own, and get its
 * number. */
struct own {
	int fd;
	dev_t device;
	ino_t inode;
};

_Atomic(struct cwdp_nccl_ring *) nccl_ring;

static struct sockaddr_un where = {.sun_family = AF_UNIX};
static char job[CWDP_NCCL_JOB_BYTES];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct own memory = {.fd = -1}, sock = {.fd = -1};

/* fstat of glibcs before 2.33 has another name; the kernel's has the same layout. */
static bool look_at(int fd, struct stat *is)
{
	return fd >= 0 && !syscall(SYS_fstat, fd, is);
}

static struct own owned(int fd)
{
	struct stat is;
	if (!look_at(fd, &is))
		return (struct own){.fd = fd};
	return (struct own){fd, is.st_dev, is.st_ino};
}

static bool is_ours(const struct own *own)
{
	struct stat is;
	return look_at(own->fd, &is) && is.st_dev == own->device && is.st_ino == own->inode;
}

static void let_go(struct own *own)
{
	if (is_ours(own))
		close(own->fd);
	own->fd = -1;
}

static bool make_ring(void)
{
	const size_t bytes = sizeof(struct cwdp_nccl_ring);
	if (!slots_make())
		return false;
	int fd = (int)syscall(SYS_memfd_create, "cwdp-nccl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return false;
	struct cwdp_nccl_ring *ring = MAP_FAILED;
	if (!ftruncate(fd, (off_t)bytes) && !fcntl(fd, F_ADD_SEALS, SEALS))
		ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (ring == MAP_FAILED) {
		close(fd);
		return false;
	}
	memory = owned(fd);
	ring->magic = CWDP_NCCL_MAGIC;
	ring->version = CWDP_NCCL_VERSION;
	ring->comms = CWDP_NCCL_COMMS;
	ring->records = CWDP_NCCL_RECORDS;
	ring->pid = getpid();
	memcpy(ring->job, job, sizeof(job));
	atomic_store(&nccl_ring, ring);
	return true;
}

static bool connect_agent(void)
{
	sock = owned(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (sock.fd >= 0 && !connect(sock.fd, (const struct sockaddr *)&where, sizeof(where)))
		return true;
	let_go(&sock);
	return false;
}

static void pass_ring(void)
{
	struct cwdp_nccl_hello hello = {CWDP_NCCL_MAGIC, CWDP_NCCL_VERSION};
	struct iovec what = {&hello, sizeof(hello)};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control = {0};
	struct msghdr message = {
		.msg_iov = &what,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
	passed->cmsg_level = SOL_SOCKET;
	passed->cmsg_type = SCM_RIGHTS;
	passed->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(passed), &memory.fd, sizeof(int));
	if (sendmsg(sock.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(hello))
		let_go(&sock);
}

/* The agent never says a word. */
static bool is_agent_there(void)
{
	char byte;
	return is_ours(&sock) && recv(sock.fd, &byte, 1, MSG_DONTWAIT) < 0 &&
	       (errno == EAGAIN || errno == EINTR);
}

/* With the guard held. */
static void meet(void)
{
	if (is_agent_there())
		return;
	let_go(&sock);
	if (!connect_agent())
		return;
	if (!atomic_load(&nccl_ring) ? make_ring() : is_ours(&memory))
		pass_ring();
	else
		let_go(&sock);
}

struct cwdp_nccl_ring *agent_meet(void)
{
	int error = errno;
	if (where.sun_path[0]) {
		pthread_mutex_lock(&guard);
		meet();
		pthread_mutex_unlock(&guard);
	}
	errno = error;
	return atomic_load(&nccl_ring);
}

void agent_look(void)
{
	int error = errno;
	if (!pthread_mutex_trylock(&guard)) {
		meet();
		pthread_mutex_unlock(&guard);
	}
	errno = error;
}

static void before_fork(void)
{
	pthread_mutex_lock(&guard);
}

static void in_parent(void)
{
	pthread_mutex_unlock(&guard);
}

static void in_child(void)
{
	struct cwdp_nccl_ring *ring = atomic_exchange(&nccl_ring, NULL);
	if (ring)
		munmap(ring, sizeof(*ring));
	let_go(&sock);
	let_go(&memory);
	slots_forget();
	pthread_mutex_unlock(&guard);
}

__attribute__((constructor)) static void begin(void)
{
	const char *wanted = secure_getenv("CWDP_NCCL");
	if (wanted && !strcmp(wanted, "off"))
		return;
	const char *path = wanted && wanted[0] == '/' ? wanted : CWDP_NCCL_SOCKET;
	if (strlen(path) >= sizeof(where.sun_path))
		return;
	strcpy(where.sun_path, path);
	name_job(job, sizeof(job));
	pthread_atfork(before_fork, in_parent, in_child);
}
