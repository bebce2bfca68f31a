/* SPDX-License-Identifier: Apache-2.0 */
/* A verbs program that does what it is told on standard input, a line each, and answers each by a line.
 *
 * An answer that tells of a call of verbs ends with errno, which was 77 before it.
 */
#include "pairs.h"
#include "posts.h"
#include "stress.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ERRNO_BEFORE 77
#define MOST_LINE    65536
#define CHILD_S      20

static const struct fake_controls *fake;
static char in_background[MOST_LINE];
static pthread_t background;
static volatile sig_atomic_t signals;

static void act(char *line);

static void answer(const char *what, int result)
{
	int told = errno;
	printf("%s %d %d\n", what, result, told);
}

static void read_gid(const char *text, uint8_t gid[16])
{
	for (int i = 0; i < 16; i++)
		sscanf(text + 2 * i, "%2hhx", &gid[i]);
}

/* modify PAIR STATE|- [path=DGID] [label=N] [port=N] [gid=N] [dlid=N] [bits=N] [to=QPN] [alternate=N]
 * [local=1] */
static void modify(char *rest)
{
	char *more, *word = strtok_r(rest, " ", &more);
	int place = atoi(word);
	struct change change = {.port = 1, .sgid_index = 3, .dest_qpn = 0x77, .is_global = true};
	word = strtok_r(NULL, " ", &more);
	change.with_state = word[0] != '-';
	change.state = atoi(word);
	while ((word = strtok_r(NULL, " ", &more))) {
		const char *value = strchr(word, '=') + 1;
		if (!strncmp(word, "path", 4)) {
			change.with_path = true;
			read_gid(value, change.dgid);
		} else if (!strncmp(word, "label", 5)) {
			change.flow_label = (uint32_t)atoi(value);
		} else if (!strncmp(word, "port", 4)) {
			change.port = (uint8_t)atoi(value);
		} else if (!strncmp(word, "gid", 3)) {
			change.sgid_index = (uint8_t)atoi(value);
		} else if (!strncmp(word, "dlid", 4)) {
			change.dlid = (uint16_t)atoi(value);
		} else if (!strncmp(word, "bits", 4)) {
			change.src_path_bits = (uint8_t)atoi(value);
		} else if (!strncmp(word, "to", 2)) {
			change.dest_qpn = (uint32_t)atoi(value);
		} else if (!strncmp(word, "alternate", 9)) {
			change.alternate = (uint16_t)atoi(value);
		} else {
			change.is_global = false;
		}
	}
	errno = ERRNO_BEFORE;
	answer("modify", pair_modify(place, &change));
}

static void query(int place)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	errno = ERRNO_BEFORE;
	int failed = lib.query_qp(pair_at(place), &attr, IBV_QP_STATE | IBV_QP_AV, &init);
	printf("query %d %d %d %u\n", failed, pair_at(place)->state, attr.qp_state,
	       attr.ah_attr.grh.flow_label);
}

static void tell_calls(void)
{
	struct fake_call calls[256];
	size_t count;
	printf("calls");
	while ((count = fake->take_calls(calls, 256)))
		for (size_t i = 0; i < count; i++)
			printf(" %s:%u:%d:%u:%u:%u:%d:%u:%u", calls[i].what, calls[i].qpn, calls[i].mask,
			       calls[i].state, calls[i].flow_label, calls[i].sport, calls[i].result,
			       calls[i].dlid, calls[i].path_bits);
	printf("\n");
}

/* The child says on the same pipe what it does, and ends; by SIGALRM where it stands still. */
static void fork_off(char *lines)
{
	char *more;
	fflush(stdout);
	pid_t child = fork();
	if (!child) {
		alarm(CHILD_S);
		for (char *line = strtok_r(lines, ";", &more); line; line = strtok_r(NULL, ";", &more))
			act(line);
		fflush(stdout);
		_exit(0);
	}
	int status;
	waitpid(child, &status, 0);
	printf("fork %d 0\n", status);
}

static void *do_in_background(void *unused)
{
	act(in_background);
	return unused;
}

/* Opens a device and makes a queue pair of it in a thread that is to be cancelled where it may be. */
static void *do_cancelled(void *gid)
{
	pthread_cancel(pthread_self());
	int context = context_open("fake_1");
	int place = pair_create(context, IBV_QPT_RC, 1);
	int failed = pair_connect(place, gid) || pair_destroy(place) || context_close(context);
	return (void *)(intptr_t)!failed;
}

/* cancelled DGID: answers 1 where the thread has come to its end. */
static void be_cancelled(const char *rest)
{
	pthread_t thread;
	uint8_t gid[16];
	void *done;
	read_gid(rest, gid);
	pthread_create(&thread, NULL, do_cancelled, gid);
	pthread_join(thread, &done);
	answer("cancelled", done == (void *)1);
}

static void on_signal(int number)
{
	signals = number ? signals + 1 : 0;
}

/* many COUNT CONTEXT DGID: so many queue pairs, from INIT to RTS */
static void make_many(const char *rest)
{
	int count, context, made = 0;
	char text[64];
	uint8_t gid[16];
	sscanf(rest, "%d %d %63s", &count, &context, text);
	read_gid(text, gid);
	for (int i = 0; i < count; i++) {
		int place = pair_create(context, IBV_QPT_RC, 1);
		made += place >= 0 && !pair_connect(place, gid);
	}
	printf("many %d 0\n", made);
}

static void destroy_many(const char *rest)
{
	int first, count, gone = 0;
	sscanf(rest, "%d %d", &first, &count);
	for (int i = first; i < first + count; i++)
		gone += !pair_destroy(i);
	printf("destroy-many %d 0\n", gone);
}

static void create(const char *rest)
{
	int context, wrs = 1;
	char type[8];
	sscanf(rest, "%d %7s %d", &context, type, &wrs);
	enum ibv_qp_type is = !strcmp(type, "rc")   ? IBV_QPT_RC
			      : !strcmp(type, "uc") ? IBV_QPT_UC
						    : IBV_QPT_UD;
	errno = ERRNO_BEFORE;
	int place = pair_create(context, is, (uint32_t)wrs);
	int told = errno;
	printf("create %d %u %d\n", place, place < 0 ? 0 : pair_at(place)->qp_num, told);
}

static void fail(const char *rest)
{
	int error, skip = 0, times = 1;
	sscanf(rest, "%d %d %d", &error, &skip, &times);
	fake->fail(error, skip, times);
	answer("fail", 0);
}

/* past PAIR DLID: loads an alternate path by a call that no shim sees */
static void load_past_shim(const char *rest)
{
	int place, dlid;
	sscanf(rest, "%d %d", &place, &dlid);
	struct ibv_qp_attr attr = {.alt_ah_attr.dlid = (uint16_t)dlid, .path_mig_state = IBV_MIG_REARM};
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int) = dlsym(library, "ibv_modify_qp");
	answer("past", modify_qp(pair_at(place), &attr, IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE));
}

static void act_on_fake(const char *verb, const char *rest)
{
	if (!strcmp(verb, "calls"))
		tell_calls();
	else if (!strcmp(verb, "fail"))
		fail(rest);
	else if (!strcmp(verb, "quiet"))
		fake->be_quiet(), answer(verb, 0);
	else if (!strcmp(verb, "refuse"))
		fake->refuse_labels(atoi(rest)), answer(verb, 0);
	else if (!strcmp(verb, "drain"))
		fake->drain(atoi(rest)), answer(verb, 0);
	else if (!strcmp(verb, "past"))
		load_past_shim(rest);
	else if (!strcmp(verb, "far-ends"))
		fake->far_ends(atoi(rest)), answer(verb, 0);
	else if (!strcmp(verb, "hold"))
		fake->hold_draining(atoi(rest)), answer(verb, 0);
	else if (!strcmp(verb, "block"))
		fake->block_destroy(atoi(rest)), answer(verb, 0);
	else
		answer("what?", -1);
}

static void act_on_process(const char *verb, char *rest)
{
	if (!strcmp(verb, "fork"))
		fork_off(rest);
	else if (!strcmp(verb, "thread")) {
		strcpy(in_background, rest);
		pthread_create(&background, NULL, do_in_background, NULL);
	} else if (!strcmp(verb, "join"))
		answer(verb, pthread_join(background, NULL));
	else if (!strcmp(verb, "sleep"))
		usleep((useconds_t)atoi(rest) * 1000), answer(verb, 0);
	else if (!strcmp(verb, "load"))
		answer(verb, dlopen(rest, RTLD_NOW) ? 0 : -1);
	else if (!strcmp(verb, "unload"))
		answer(verb, dlclose(dlopen(rest, RTLD_NOW | RTLD_NOLOAD)));
	else if (!strcmp(verb, "cancelled"))
		be_cancelled(rest);
	else if (!strcmp(verb, "closefrom"))
		closefrom(atoi(rest)), answer(verb, 0);
	else if (!strcmp(verb, "leave")) /* the process goes on as long as its other threads */
		pthread_exit(NULL);
	else if (!strcmp(verb, "signals"))
		answer(verb, (int)signals);
	else if (!strcmp(verb, "stress"))
		answer(verb, stress(rest));
	else if (!strcmp(verb, "time"))
		time_rtr(rest);
	else if (!strcmp(verb, "time-post"))
		time_post(rest);
	else
		act_on_fake(verb, rest);
}

static void act(char *line)
{
	char *rest = strchr(line, ' ');
	if (rest)
		*rest++ = '\0';
	else
		rest = line + strlen(line);
	errno = ERRNO_BEFORE;
	if (!strcmp(line, "open"))
		answer(line, context_open(rest));
	else if (!strcmp(line, "close"))
		answer(line, context_close(atoi(rest)));
	else if (!strcmp(line, "create"))
		create(rest);
	else if (!strcmp(line, "modify"))
		modify(rest);
	else if (!strcmp(line, "query"))
		query(atoi(rest));
	else if (!strcmp(line, "destroy"))
		answer(line, pair_destroy(atoi(rest)));
	else if (!strcmp(line, "post"))
		post(rest);
	else if (!strcmp(line, "many"))
		make_many(rest);
	else if (!strcmp(line, "destroy-many"))
		destroy_many(rest);
	else
		act_on_process(line, rest);
}

int main(void)
{
	static char line[MOST_LINE];
	signal(SIGUSR1, on_signal);
	lib_find();
	fake = lib_controls();
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		act(line);
		fflush(stdout);
	}
	return 0;
}
