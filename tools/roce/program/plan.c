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
}
