/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "told.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1 << 30)
#define MOST_MS    86400000
#define ELEMENT    4

static const char usage[] =
	"usage: cwdp-collective --rank R --ranks N --rendezvous ADDRESS:PORT --device NAME --gid-index I\n"
	"  [--function all-reduce|all-to-all|send] [--bytes B] [--chunk-bytes B] [--iterations N]\n"
	"  [--channels N] [--qps N] [--split] [--adaptive-routing] [--compute-ms MS]\n"
	"  [--slow-rank R --slow PERCENT%] [--stall-rank R --stall-ms MS --stall-every-ms MS]\n"
	"  [--timeout-s S] [--profiler-version V]\n";

static const char *const functions[] = {
	[ALL_REDUCE] = "all-reduce", [ALL_TO_ALL] = "all-to-all", [SEND] = "send"};

static const struct number {
	const char *name;
	size_t place;
	long least, most;
	const char *unit;
} numbers[] = {
	{"rank", offsetof(struct options, rank), 0, MOST_RANKS - 1, ""},
	{"ranks", offsetof(struct options, ranks), 2, MOST_RANKS, ""},
	{"gid-index", offsetof(struct options, gid_index), 0, UINT8_MAX, ""},
	{"bytes", offsetof(struct options, bytes), ELEMENT, MOST_BYTES, ""},
	{"chunk-bytes", offsetof(struct options, chunk_bytes), ELEMENT, MOST_BYTES, ""},
	{"iterations", offsetof(struct options, iterations), 1, MOST_BYTES, ""},
	{"channels", offsetof(struct options, channels), 1, MOST_CHANNELS, ""},
	{"qps", offsetof(struct options, qps), 1, MOST_QPS, ""},
	{"compute-ms", offsetof(struct options, compute_ms), 0, MOST_MS, ""},
	{"slow-rank", offsetof(struct options, slow_rank), 0, MOST_RANKS - 1, ""},
	{"slow", offsetof(struct options, slow_percent), 0, 100000, "%"},
	{"stall-rank", offsetof(struct options, stall_rank), 0, MOST_RANKS - 1, ""},
	{"stall-ms", offsetof(struct options, stall_ms), 0, MOST_MS, ""},
	{"stall-every-ms", offsetof(struct options, stall_every_ms), 1, MOST_MS, ""},
	{"timeout-s", offsetof(struct options, timeout_s), 1, 86400, ""},
	{"profiler-version", offsetof(struct options, profiler_version), 1, 6, ""},
};
#define NUMBERS (sizeof(numbers) / sizeof(numbers[0]))

static int number_of(const char *name, const char *text, const char *unit, long least, long most)
{
	char *end;
	errno = 0;
	long number = strtol(text, &end, 10);
	if (end == text || strcmp(end, unit) || errno || number < least || number > most)
		give_up(WRONG_USE, "--%s is %s; it must be from %ld%s to %ld%s", name, text, least, unit,
			most, unit);
	return (int)number;
}

static void read_number(struct options *options, const struct number *of, const char *text)
{
	int number = number_of(of->name, text, of->unit, of->least, of->most);
	memcpy((char *)options + of->place, &number, sizeof(number));
}

static void read_meeting(struct options *options, char *text)
{
	char *colon = strrchr(text, ':');
	if (!colon)
		give_up(WRONG_USE, "--rendezvous is %s; it must be ADDRESS:PORT", text);
	*colon = '\0';
	options->host = text;
	options->port = number_of("rendezvous", colon + 1, "", 1, UINT16_MAX);
}

static enum function read_function(const char *text)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (!strcmp(text, functions[i]))
			return (enum function)i;
	give_up(WRONG_USE, "--function is %s; it must be all-reduce, all-to-all or send", text);
}

static void read_one(struct options *options, int letter, char *text)
{
	switch (letter) {
	case 'm':
		read_meeting(options, text);
		break;
	case 'd':
		options->device = text;
		break;
	case 'f':
		options->function = read_function(text);
		break;
	case 's':
		options->is_split = true;
		break;
	case 'a':
		options->is_adaptive = true;
		break;
	case 'h':
		fputs(usage, stdout);
		exit(0);
	default:
		fputs(usage, stderr);
		exit(WRONG_USE);
	}
}

/* Channels and, of an all-reduce, ranks have equal parts of whole elements. */
static void check(const struct options *options)
{
	int parts = options->channels * (options->function == ALL_REDUCE ? options->ranks : 1);
	if (options->rank < 0 || options->ranks < 0 || !options->host || !options->device ||
	    options->gid_index < 0)
		give_up(WRONG_USE, "--rank, --ranks, --rendezvous, --device and --gid-index are needed\n%s",
			usage);
	if (options->rank >= options->ranks)
		give_up(WRONG_USE, "--rank is %d; of %d ranks the last is %d", options->rank, options->ranks,
			options->ranks - 1);
	if (options->function == SEND && options->ranks % 2)
		give_up(WRONG_USE, "--ranks is %d; to send in pairs their number must be even",
			options->ranks);
	if (options->bytes % (ELEMENT * parts))
		give_up(WRONG_USE, "--bytes is %d; it must be a multiple of %d: %d parts of %d bytes",
			options->bytes, ELEMENT * parts, parts, ELEMENT);
	if (options->chunk_bytes % ELEMENT)
		give_up(WRONG_USE, "--chunk-bytes is %d; it must be a multiple of %d", options->chunk_bytes,
			ELEMENT);
	if (options->stall_ms >= options->stall_every_ms)
		give_up(WRONG_USE, "--stall-ms is %d; it must be less than --stall-every-ms, %d",
			options->stall_ms, options->stall_every_ms);
}

struct options options_read(int argc, char **argv)
{
	struct options options = {
		.rank = -1,
		.ranks = -1,
		.gid_index = -1,
		.bytes = 1 << 20,
		.chunk_bytes = 1 << 17,
		.iterations = 1,
		.channels = 1,
		.qps = 1,
		.slow_rank = -1,
		.stall_rank = -1,
		.stall_every_ms = 1000,
		.timeout_s = 30,
	};
	struct option names[NUMBERS + 7] = {
		[NUMBERS] = {"rendezvous", required_argument, NULL, 'm'},
		{"device", required_argument, NULL, 'd'},
		{"function", required_argument, NULL, 'f'},
		{"split", no_argument, NULL, 's'},
		{"adaptive-routing", no_argument, NULL, 'a'},
		{"help", no_argument, NULL, 'h'},
	};
	for (size_t i = 0; i < NUMBERS; i++)
		names[i] = (struct option){numbers[i].name, required_argument, NULL, 0};
	int which, letter;
	while ((letter = getopt_long(argc, argv, "", names, &which)) != -1) {
		if (letter)
			read_one(&options, letter, optarg);
		else
			read_number(&options, &numbers[which], optarg);
	}
	if (optind < argc)
		give_up(WRONG_USE, "%s is not understood\n%s", argv[optind], usage);
	check(&options);
	return options;
}

/* FNV-1a. */
uint64_t options_hash(const struct options *options)
{
	const int alike[] = {
		options->ranks,    (int)options->function, options->bytes,    options->chunk_bytes,
		options->channels, options->iterations,    options->is_split, options->qps,
	};
	uint64_t hash = 0xcbf29ce484222325ull;
	for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++)
		hash = (hash ^ (uint32_t)alike[i]) * 0x100000001b3ull;
	return hash;
}
