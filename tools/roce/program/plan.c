/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fail.h"

#define LINE_BYTES 1024
#define MAX_RATE   1000000000000ull
#define NEVER_NS   3600000000000ull

enum kind {
	U32,
	U64,
	ADDRESS,
};

/* A word of a line: what it is called, where it goes, and which numbers are sane. */
struct setting {
	const char *name;
	size_t offset;
	enum kind kind;
	uint64_t least;
	uint64_t most;
};

#define IN_QP(member)        offsetof(struct qp, member)
#define IN_REQUESTER(member) offsetof(struct requester, member)

static const struct setting snapshot_settings[] = {
	{"interval_ns", offsetof(struct plan, snapshot_ns), U64, 1000000, NEVER_NS},
	{0},
};

static const struct setting qp_settings[] = {
	{"id", IN_QP(id), U32, 0, UINT32_MAX},
	{"local", IN_QP(path.local), ADDRESS, 0, 0},
	{"remote", IN_QP(path.remote), ADDRESS, 0, 0},
	{"sport", IN_QP(path.sport), U32, 1, UINT16_MAX},
	{"tos", IN_QP(path.tos), U32, 0, UINT8_MAX},
	{"flow_label", IN_QP(path.flow_label), U32, 0, (1 << 20) - 1},
	{"udp_checksum", IN_QP(path.with_checksum), U32, 0, 1},
	{"qpn", IN_QP(qpn), U32, 0, PSN_MASK},
	{"remote_qpn", IN_QP(path.remote_qpn), U32, 0, PSN_MASK},
	{"first_psn", IN_QP(first_psn), U32, 0, PSN_MASK},
	{0},
};

static const struct setting send_settings[] = {
	{"mtu", IN_REQUESTER(mtu), U32, 256, MAX_MTU},
	{"window", IN_REQUESTER(window), U32, 1, 1 << 20},
	{"ack_every", IN_REQUESTER(ack_every), U32, 1, 1 << 20},
	{"retries", IN_REQUESTER(retries), U32, 0, UINT32_MAX},
	{"message_bytes", IN_REQUESTER(message_bytes), U64, 1, 1u << 31},
	{"total_bytes", IN_REQUESTER(total_bytes), U64, 0, UINT64_MAX >> 1},
	{"rate_bps", IN_REQUESTER(rate_bps), U64, 0, MAX_RATE},
	{"timeout_ns", IN_REQUESTER(timeout_ns), U64, 100000, NEVER_NS},
	{0},
};

static const struct setting rank_settings[] = {
	{"id", offsetof(struct rank, id), U32, 0, UINT32_MAX},
	{"iterations", offsetof(struct rank, iterations), U64, 0, UINT64_MAX},
	{"seed", offsetof(struct rank, seed), U64, 0, UINT64_MAX},
	{"stall_ns", offsetof(struct rank, stall_ns), U64, 0, NEVER_NS},
	{"stall_every_ns", offsetof(struct rank, stall_every_ns), U64, 0, NEVER_NS},
	{0},
};

static const struct setting step_settings[] = {
	{"compute_ns", offsetof(struct step, compute_ns), U64, 0, NEVER_NS},
	{"jitter_ns", offsetof(struct step, jitter_ns), U64, 0, NEVER_NS},
	{0},
};

static const struct setting input_settings[] = {
	{"flow", offsetof(struct input, flow), U32, 0, UINT32_MAX},
	{0},
};

static const struct setting output_settings[] = {
	{"flow", offsetof(struct output, flow), U32, 0, UINT32_MAX},
	{0},
};

static const struct setting *find(const struct setting *settings, const char *name)
{
	for (; settings->name; settings++)
		if (strcmp(settings->name, name) == 0)
			return settings;
	return NULL;
}

static void store_address(struct path *path, uint8_t *where, const char *value)
{
	int family = strchr(value, ':') ? AF_INET6 : AF_INET;

	if (inet_pton(family, value, where) != 1)
		fail_plan("%s is not an IP address", value);
	if (path->family && path->family != family)
		fail_plan("%s is not of the other address's family", value);
	path->family = family;
}

static void store_number(const struct setting *setting, void *where, const char *value)
{
	char *end;
	uint64_t number;

	errno = 0;
	number = strtoull(value, &end, 10);
	if (errno || end == value || *end || number < setting->least || number > setting->most)
		fail_plan("%s=%s is not a number from %llu to %llu", setting->name, value,
			  (unsigned long long)setting->least, (unsigned long long)setting->most);
	if (setting->kind == U32)
		*(uint32_t *)where = number;
	else
		*(uint64_t *)where = number;
}

/* Puts the words of a line into up to two structs, each described by its settings; all words are needed. */
static void store_words(char *words, const struct setting *first, void *first_into,
			const struct setting *second, void *second_into)
{
	size_t wanted = 0, found = 0;

	for (const struct setting *setting = first; setting->name; setting++)
		wanted++;
	for (const struct setting *setting = second; setting && setting->name; setting++)
		wanted++;
	for (char *word = strtok(words, " \n"); word; word = strtok(NULL, " \n"), found++) {
		char *value = strchr(word, '=');
		const struct setting *setting;
		uint8_t *into = first_into;

		if (!value)
			fail_plan("%s is not NAME=VALUE", word);
		*value++ = '\0';
		setting = find(first, word);
		if (!setting && second) {
			setting = find(second, word);
			into = second_into;
		}
		if (!setting)
			fail_plan("there is no setting %s here", word);
		if (setting->kind == ADDRESS)
			store_address(&((struct qp *)first_into)->path, into + setting->offset, value);
		else
			store_number(setting, into + setting->offset, value);
	}
	if (found != wanted)
		fail_plan("a line has %zu settings and needs %zu", found, wanted);
}

static void *grown(void *array, size_t total, size_t size)
{
	uint8_t *bytes = need(realloc(array, (total + 1) * size));

	memset(bytes + total * size, 0, size);
	return bytes;
}

static struct responder *find_responder(const struct plan *plan, uint32_t flow)
{
	for (size_t i = 0; i < plan->responder_total; i++)
		if (plan->responders[i].qp.id == flow)
			return &plan->responders[i];
	fail_plan("a step waits for the flow %u, which does not come here", flow);
}

static struct requester *find_requester(const struct plan *plan, uint32_t flow)
{
	for (size_t i = 0; i < plan->requester_total; i++)
		if (plan->requesters[i].qp.id == flow)
			return &plan->requesters[i];
	fail_plan("a step posts to the flow %u, which does not begin here", flow);
}

static struct step *last_step(const struct plan *plan)
{
	struct rank *rank = plan->rank_total ? &plan->ranks[plan->rank_total - 1] : NULL;

	if (!rank || !rank->step_total)
		fail_plan("a message belongs to no step");
	return &rank->steps[rank->step_total - 1];
}

static void read_rank(struct plan *plan, char *words)
{
	plan->ranks = grown(plan->ranks, plan->rank_total, sizeof(*plan->ranks));
	store_words(words, rank_settings, &plan->ranks[plan->rank_total++], NULL, NULL);
}

static void read_step(struct plan *plan, char *words)
{
	struct rank *rank = plan->rank_total ? &plan->ranks[plan->rank_total - 1] : NULL;

	if (!rank)
		fail_plan("a step belongs to no rank");
	rank->steps = grown(rank->steps, rank->step_total, sizeof(*rank->steps));
	store_words(words, step_settings, &rank->steps[rank->step_total++], NULL, NULL);
}

static void read_input(struct plan *plan, char *words)
{
	struct step *step = last_step(plan);

	step->inputs = grown(step->inputs, step->input_total, sizeof(*step->inputs));
	store_words(words, input_settings, &step->inputs[step->input_total++], NULL, NULL);
}

static void read_output(struct plan *plan, char *words)
{
	struct step *step = last_step(plan);

	step->outputs = grown(step->outputs, step->output_total, sizeof(*step->outputs));
	store_words(words, output_settings, &step->outputs[step->output_total++], NULL, NULL);
}

/* Queue pairs have their places in memory when all lines are read. */
static void connect_rank(const struct plan *plan, struct rank *rank)
{
	size_t messages = 0;

	for (size_t i = 0; i < rank->step_total; i++) {
		struct step *step = &rank->steps[i];

		for (size_t j = 0; j < step->input_total; j++)
			step->inputs[j].responder = find_responder(plan, step->inputs[j].flow);
		for (size_t j = 0; j < step->output_total; j++)
			step->outputs[j].requester = find_requester(plan, step->outputs[j].flow);
		messages += step->input_total + step->output_total;
	}
	if (!messages)
		fail_plan("the rank %u neither waits for messages nor posts any", rank->id);
	if (rank->stall_ns && rank->stall_ns >= rank->stall_every_ns)
		fail_plan("the rank %u stands still all the time", rank->id);
	rank_init(rank);
}

static void read_line(struct plan *plan, char *line)
{
	char *words = strchr(line, ' ');

	if (!words)
		fail_plan("there are no settings in the line %s", line);
	*words++ = '\0';
	if (strcmp(line, "snapshots") == 0) {
		store_words(words, snapshot_settings, plan, NULL, NULL);
	} else if (strcmp(line, "send") == 0) {
		struct requester *requester;

		plan->requesters = grown(plan->requesters, plan->requester_total, sizeof(*requester));
		requester = &plan->requesters[plan->requester_total++];
		store_words(words, qp_settings, &requester->qp, send_settings, requester);
		requester_init(requester);
	} else if (strcmp(line, "receive") == 0) {
		struct responder *responder;

		plan->responders = grown(plan->responders, plan->responder_total, sizeof(*responder));
		responder = &plan->responders[plan->responder_total++];
		store_words(words, qp_settings, &responder->qp, NULL, NULL);
	} else if (strcmp(line, "rank") == 0) {
		read_rank(plan, words);
	} else if (strcmp(line, "step") == 0) {
		read_step(plan, words);
	} else if (strcmp(line, "await") == 0) {
		read_input(plan, words);
	} else if (strcmp(line, "post") == 0) {
		read_output(plan, words);
	} else {
		fail_plan("a line begins with %s, which means nothing", line);
	}
}

void plan_read(struct plan *plan, const char *file_name)
{
	char line[LINE_BYTES];
	FILE *file = fopen(file_name, "re");

	if (!file)
		fail_system(file_name);
	while (fgets(line, sizeof(line), file))
		read_line(plan, line);
	fclose(file);
	for (size_t i = 0; i < plan->rank_total; i++)
		connect_rank(plan, &plan->ranks[i]);
}
