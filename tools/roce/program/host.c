/* SPDX-License-Identifier: Apache-2.0 */
#include "host.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "common/fail.h"
#include "packets/icrc.h"
#include "report.h"

#define NS_PER_S        1000000000ull
#define SEND_BURST      4   /* packets of a queue pair before it is the next one's turn */
#define RECEIVE_BURST   256 /* packets taken in before it is time to answer and send */
#define EVENTS          64
#define CLOCK_READS     10
#define OFFSET_VALID_NS NS_PER_S
/* What a host's own queue may hold, shared by its queue pairs: like a NIC, which takes the next packet when
 * the last has left, but with the slack that a process needs to be woken. */
#define NIC_QUEUE_BYTES     (128 * 1024)
#define ANSWER_BUFFER_BYTES (128 * 1024)

/* A queue pair by its number; one of the two is set. */
struct qp_entry {
	uint32_t qpn;
	struct requester *requester;
	struct responder *responder;
};

static uint64_t read_clock(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * NS_PER_S + time.tv_nsec;
}

static uint64_t now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

/* CLOCK_REALTIME, by which the kernel stamps arrivals, minus CLOCK_MONOTONIC; by the reading that was
 * disturbed least. */
static void measure_offset(struct host *host, uint64_t now)
{
	uint64_t least = UINT64_MAX;

	if (now < host->offset_until_ns)
		return;
	for (int i = 0; i < CLOCK_READS; i++) {
		uint64_t before = now_ns(), real = read_clock(CLOCK_REALTIME), took = now_ns() - before;

		if (took < least) {
			least = took;
			host->realtime_offset_ns = real - before - took / 2;
		}
	}
	host->offset_until_ns = now + OFFSET_VALID_NS;
}

static int by_qpn(const void *a, const void *b)
{
	const struct qp_entry *left = a, *right = b;

	return (left->qpn > right->qpn) - (left->qpn < right->qpn);
}

static void index_queue_pairs(struct host *host)
{
	size_t total = host->plan->requester_total + host->plan->responder_total;
	struct qp_entry *next = host->entries = need(calloc(total + 1, sizeof(*next)));

	for (size_t i = 0; i < host->plan->requester_total; i++, next++) {
		next->requester = &host->plan->requesters[i];
		next->qpn = next->requester->qp.qpn;
	}
	for (size_t i = 0; i < host->plan->responder_total; i++, next++) {
		next->responder = &host->plan->responders[i];
		next->qpn = next->responder->qp.qpn;
	}
	qsort(host->entries, total, sizeof(*host->entries), by_qpn);
	for (size_t i = 1; i < total; i++)
		if (host->entries[i].qpn == host->entries[i - 1].qpn)
			fail_plan("two queue pairs have the number %u", host->entries[i].qpn);
}

static struct qp_entry *find_queue_pair(const struct host *host, const struct packet *packet)
{
	size_t total = host->plan->requester_total + host->plan->responder_total;
	struct qp_entry key = {.qpn = packet->qpn};
	struct qp_entry *entry = bsearch(&key, host->entries, total, sizeof(key), by_qpn);
	const struct path *path;

	if (!entry)
		return NULL;
	path = entry->requester ? &entry->requester->qp.path : &entry->responder->qp.path;
	if (path->family != packet->family ||
	    memcmp(path->remote, packet->source, address_bytes(path->family)) != 0 ||
	    memcmp(path->local, packet->destination, address_bytes(path->family)) != 0)
		return NULL;
	return entry;
}

static void watch(const struct host *host, int fd, uint32_t events, void *what)
{
	struct epoll_event event = {.events = events, .data.ptr = what};

	if (epoll_ctl(host->epoll, EPOLL_CTL_ADD, fd, &event))
		fail_system("epoll");
}

static void watch_room(const struct host *host, struct channel *channel)
{
	struct epoll_event event = {.events = EPOLLOUT | EPOLLONESHOT, .data.ptr = channel};

	channel->blocked = true;
	if (epoll_ctl(host->epoll, EPOLL_CTL_MOD, channel->socket, &event))
		fail_system("epoll");
}

static void open_family(struct host *host, int family)
{
	struct ring *ring = &host->rings[host->ring_total++];

	net_hold_port(family);
	net_ring_open(ring, family);
	watch(host, ring->socket, EPOLLIN, NULL);
}

static void open_queue_pair(struct host *host, struct qp *qp, size_t buffer_bytes, bool families[FAMILIES])
{
	bool *open = &families[qp->path.family == AF_INET6];

	if (!*open)
		open_family(host, qp->path.family);
	*open = true;
	net_channel_open(&qp->channel, qp->path.family, qp->path.local, qp->path.remote, buffer_bytes);
	watch(host, qp->channel.socket, 0, &qp->channel);
}

static void open_all(struct host *host)
{
	struct plan *plan = host->plan;
	bool families[FAMILIES] = {false};

	host->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (host->epoll < 0)
		fail_system("epoll");
	for (size_t i = 0; i < plan->requester_total; i++)
		open_queue_pair(host, &plan->requesters[i].qp, NIC_QUEUE_BYTES / plan->requester_total,
				families);
	for (size_t i = 0; i < plan->responder_total; i++)
		open_queue_pair(host, &plan->responders[i].qp, ANSWER_BUFFER_BYTES, families);
	host->answering = need(calloc(plan->responder_total + 1, sizeof(struct responder *)));
	watch(host, STDIN_FILENO, EPOLLIN, host);
}

static void take_in(struct host *host, const struct packet *packet, struct qp_entry *entry, uint64_t at_ns)
{
	struct responder *responder = entry->responder;

	if (entry->requester && packet->opcode == RC_ACKNOWLEDGE) {
		qp_count_port(&entry->requester->qp, packet->sport, at_ns);
		requester_on_acknowledge(entry->requester, packet, at_ns);
	} else if (entry->requester && packet->opcode == CNP) {
		entry->requester->cnps++;
	} else if (responder && is_write(packet->opcode)) {
		qp_count_port(&responder->qp, packet->sport, at_ns);
		responder_on_write(responder, packet, at_ns);
		if (!responder->queued)
			host->answering[host->answering_total++] = responder;
		responder->queued = true;
	} else {
		host->counters.unknown_opcode++;
	}
}

static void judge(struct host *host, const struct arrival *arrival)
{
	struct packet packet;
	struct qp_entry *entry;

	switch (wire_parse(arrival->data, arrival->length, &packet)) {
	case PACKET_NOT_OURS:
		host->counters.not_ours++;
		return;
	case PACKET_MALFORMED:
		host->counters.malformed++;
		return;
	case PACKET_OK:
		break;
	}
	entry = find_queue_pair(host, &packet);
	if (!entry)
		host->counters.unknown_qp++;
	else if (!icrc_valid(packet.data, packet.length))
		host->counters.icrc_errors++;
	else if (!udp_checksum_valid(packet.data, packet.length))
		host->counters.checksum_errors++;
	else
		take_in(host, &packet, entry, arrival->at_ns - host->realtime_offset_ns);
}

static void receive(struct host *host, struct ring *ring)
{
	struct arrival arrival;

	for (int i = 0; i < RECEIVE_BURST && net_ring_take(ring, &arrival); i++) {
		judge(host, &arrival);
		net_ring_release(ring);
	}
}

/* Sends what a responder has to say; returns false if its socket has no room for it yet. */
static bool answer(const struct host *host, struct responder *responder)
{
	uint8_t packet[MAX_PACKET_BYTES];
	struct transport transport;

	while (responder_answer(responder, &transport)) {
		size_t length = wire_build(&responder->qp.path, &transport, packet);

		if (!net_send(&responder->qp.channel, packet, length)) {
			watch_room(host, &responder->qp.channel);
			return false;
		}
		responder_answered(responder, &transport);
	}
	return true;
}

static void answer_all(struct host *host)
{
	size_t left = 0;

	for (size_t i = 0; i < host->answering_total; i++) {
		struct responder *responder = host->answering[i];

		responder->queued = responder->qp.channel.blocked || !answer(host, responder);
		if (responder->queued)
			host->answering[left++] = responder;
	}
	host->answering_total = left;
}

static void send_burst(const struct host *host, struct requester *requester)
{
	uint8_t packet[MAX_PACKET_BYTES];

	for (int i = 0; i < SEND_BURST && !requester->qp.channel.blocked; i++) {
		uint64_t now = now_ns();
		size_t length;

		if (requester_send_ns(requester) > now)
			return;
		length = requester_build(requester, now, packet);
		if (net_send(&requester->qp.channel, packet, length))
			requester_sent(requester, now, length);
		else
			watch_room(host, &requester->qp.channel);
	}
}

/* Returns whether all ranks have completed all their iterations. */
static bool work_ranks(const struct host *host)
{
	bool done = true;

	for (size_t i = 0; i < host->plan->rank_total; i++) {
		struct rank *rank = &host->plan->ranks[i];
		uint64_t now = now_ns();

		for (; rank_work(rank, now); now = now_ns()) {
			report_iteration(rank, now);
			rank_next(rank);
		}
		done = done && rank_done(rank);
	}
	return done;
}

/* No rank can do without a queue pair. */
static void say_failed(struct host *host, const struct requester *requester)
{
	if (!requester->gated || !requester->failed || host->said_failed)
		return;
	report_event("failed");
	host->said_failed = true;
}

static void work_requesters(struct host *host, uint64_t now)
{
	bool over = now >= host->until_ns, done = work_ranks(host);

	if (over)
		host->until_ns = UINT64_MAX;
	for (size_t i = 0; i < host->plan->requester_total; i++) {
		struct requester *requester = &host->plan->requesters[i];

		if (over)
			requester_finish(requester);
		if (now >= requester_timer_ns(requester))
			requester_on_timer(requester, now);
		send_burst(host, requester);
		say_failed(host, requester);
		done = done && requester_done(requester);
	}
	if (done && !host->said_done)
		report_event("done");
	host->said_done = done;
}

static void work(struct host *host)
{
	uint64_t now = now_ns();

	measure_offset(host, now);
	for (int i = 0; i < host->ring_total; i++)
		receive(host, &host->rings[i]);
	answer_all(host);
	if (now < host->start_ns)
		return;
	work_requesters(host, now);
	if (host->plan->snapshot_ns && now >= host->snapshot_ns) {
		report_snapshot(host, now);
		host->snapshot_ns =
			now - (now - host->start_ns) % host->plan->snapshot_ns + host->plan->snapshot_ns;
	}
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t next_event_ns(const struct host *host)
{
	uint64_t next = host->until_ns;

	if (host->start_ns > now_ns())
		return host->start_ns;
	if (host->plan->snapshot_ns)
		next = earlier(next, host->snapshot_ns);
	for (size_t i = 0; i < host->plan->rank_total; i++)
		next = earlier(next, rank_timer_ns(&host->plan->ranks[i]));
	for (size_t i = 0; i < host->plan->requester_total; i++) {
		const struct requester *requester = &host->plan->requesters[i];

		next = earlier(next, requester_timer_ns(requester));
		if (!requester->qp.channel.blocked)
			next = earlier(next, requester_send_ns(requester));
	}
	return next;
}

static void wait_for_event(struct host *host)
{
	uint64_t next = next_event_ns(host), now = now_ns(), left = next > now ? next - now : 0;
	struct timespec timeout = {.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
	struct epoll_event events[EVENTS];
	int total = epoll_pwait2(host->epoll, events, EVENTS, next == UINT64_MAX ? NULL : &timeout, NULL);

	for (int i = 0; i < total; i++) {
		if (events[i].data.ptr == host)
			command_read(host);
		else if (events[i].data.ptr)
			((struct channel *)events[i].data.ptr)->blocked = false;
	}
}

void host_run(struct plan *plan)
{
	struct host host = {.plan = plan, .start_ns = UINT64_MAX, .until_ns = UINT64_MAX};

	index_queue_pairs(&host);
	open_all(&host);
	report_event("ready");
	while (!host.stopped) {
		work(&host);
		wait_for_event(&host);
	}
	for (int i = 0; i < host.ring_total; i++)
		net_ring_count_lost(&host.rings[i]);
	report_result(&host);
}
