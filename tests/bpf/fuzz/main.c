/* SPDX-License-Identifier: Apache-2.0 */
/* Mutated frames through the programs of a loaded dataplane, each judged by an oracle of its own.
 *
 *	fuzz programs XDP_PIN TC_PIN AGENT_PIN SEED FRAMES
 *	fuzz wire IN OUT SEED FRAMES
 *
 * The first runs XDP and tc egress, the latter by AGENT_PIN for packets of the agent's own sockets. The
 *second sends into the interface IN what is for OUT, whose NIC another stands in for. Both read on standard
 *input, a line each:
 *
 *	steered ADDRESS QPN PORT FLOW_LABEL SWITCHED   address in hexadecimal, 16 bytes
 *	partner MAC IPV4 IPV6                          in hexadecimal
 *	frame BYTES                                    in hexadecimal
 *
 * and write a few frames that were steered and whose ICRC had been right ("steered BYTES"), then "frames N
 * steered N reflected N given N" or "frames N restored N"; or "wrong WHAT VERDICT BEFORE AFTER", and exit
 *with 1. */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

#define CORPUS_MAX      256
#define STEERED_MAX     64
#define LINE_MAX        (2 * FRAME_MAX + 64)
#define SHOWN           1000
#define PROBE_MARK      0x43574450
#define TC_ACT_UNSPEC   (-1)
#define TC_ACT_REDIRECT 7

struct fuzz {
	int xdp;
	int tc;
	int agent;
	struct dice dice;
	struct corpus corpus;
	uint64_t steered_frames;
	uint64_t shown_frames;
	uint64_t reflected_frames;
	uint64_t given_frames;
	uint64_t ack_frames;
};

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

static size_t from_hex(const char *text, uint8_t *bytes, size_t room)
{
	unsigned int byte;
	size_t total = 0;

	while (total < room && sscanf(text + 2 * total, "%2x", &byte) == 1)
		bytes[total++] = byte;
	return total;
}

static void print_hex(const struct frame *frame)
{
	putchar(' ');
	for (size_t i = 0; i < frame->length; i++)
		printf("%02x", frame->bytes[i]);
}

static void read_partner(const char *line, struct partner *partner)
{
	char mac[13], ipv4[9], ipv6[33];

	if (sscanf(line, "partner %12s %8s %32s", mac, ipv4, ipv6) != 3)
		return;
	from_hex(mac, partner->mac, sizeof(partner->mac));
	from_hex(ipv4, partner->ipv4, sizeof(partner->ipv4));
	from_hex(ipv6, partner->ipv6, sizeof(partner->ipv6));
}

static void read_input(struct corpus *corpus)
{
	static struct frame frames[CORPUS_MAX];
	static struct steered steered[STEERED_MAX];
	static char line[LINE_MAX];
	struct rules *rules = &corpus->rules;
	char address[33];
	unsigned int qpn, port, label, switched;

	corpus->frames = frames;
	rules->steered = steered;
	while (fgets(line, sizeof(line), stdin)) {
		read_partner(line, &rules->partner);
		if (sscanf(line, "steered %32s %u %u %u %u", address, &qpn, &port, &label, &switched) == 5 &&
		    rules->total < STEERED_MAX) {
			struct steered *one = &steered[rules->total++];

			from_hex(address, one->address, sizeof(one->address));
			one->qpn = qpn;
			one->port = port;
			one->flow_label = label;
			one->switched = switched;
		} else if (!strncmp(line, "frame ", 6) && corpus->total < CORPUS_MAX) {
			struct frame *frame = &frames[corpus->total++];

			frame->length = from_hex(line + 6, frame->bytes, sizeof(frame->bytes));
		}
	}
	if (!rules->total || !corpus->total) {
		fprintf(stderr, "nothing to start from on standard input\n");
		exit(2);
	}
}

static int run(int program, const struct frame *in, struct frame *out, __u32 mark, __u32 priority)
{
	struct __sk_buff context = {.mark = mark, .priority = priority};
	LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = in->bytes, .data_size_in = in->length,
		    .data_out = out->bytes, .data_size_out = sizeof(out->bytes));

	if (mark) {
		opts.ctx_in = &context;
		opts.ctx_size_in = sizeof(context);
	}
	if (bpf_prog_test_run_opts(program, &opts))
		fail("test run");
	out->length = opts.data_size_out;
	return opts.retval;
}

static void judge(const char *wrong, int verdict, const struct frame *in, const struct frame *out)
{
	if (!wrong)
		return;
	printf("wrong %s; verdict %d;", wrong, verdict);
	print_hex(in);
	print_hex(out);
	putchar('\n');
	exit(1);
}

static void show_steered(struct fuzz *fuzz, const struct frame *in, const struct frame *out)
{
	if (!oracle_steers(&fuzz->corpus.rules, in))
		return;
	fuzz->steered_frames++;
	if (fuzz->shown_frames >= SHOWN || !frame_icrc_is_right(in))
		return;
	fuzz->shown_frames++;
	printf("steered");
	print_hex(out);
	putchar('\n');
}

static void fuzz_one(struct fuzz *fuzz)
{
	const struct rules *rules = &fuzz->corpus.rules;
	static struct frame in, out;
	uint32_t qpn;
	int verdict;

	mutate(&fuzz->dice, &fuzz->corpus, &in);
	verdict = run(fuzz->xdp, &in, &out, 0, 0);
	judge(oracle_ingress(&in, &out, verdict), verdict, &in, &out);
	fuzz->reflected_frames += verdict == XDP_TX;
	if (!dice_below(&fuzz->dice, 8)) {
		qpn = rules->steered[dice_below(&fuzz->dice, rules->total)].qpn;
		verdict = run(fuzz->agent, &in, &out, PROBE_MARK, qpn);
		judge(oracle_marked_egress(rules, &in, &out, verdict, qpn), verdict, &in, &out);
		fuzz->given_frames += verdict == TC_ACT_REDIRECT;
		fuzz->ack_frames += verdict == TC_ACT_UNSPEC && oracle_is_ack(&in);
		return;
	}
	verdict = run(fuzz->tc, &in, &out, dice_below(&fuzz->dice, 8) ? 0 : PROBE_MARK, 0);
	judge(oracle_egress(rules, &in, &out, verdict), verdict, &in, &out);
	show_steered(fuzz, &in, &out);
}

static void fuzz_programs(struct fuzz *fuzz, char **pins, uint64_t total)
{
	fuzz->xdp = bpf_obj_get(pins[0]);
	fuzz->tc = bpf_obj_get(pins[1]);
	fuzz->agent = bpf_obj_get(pins[2]);
	if (fuzz->xdp < 0 || fuzz->tc < 0 || fuzz->agent < 0)
		fail("open program");
	for (uint64_t i = 0; i < total; i++)
		fuzz_one(fuzz);
	printf("frames %llu steered %llu reflected %llu given %llu acks %llu\n", (unsigned long long)total,
	       (unsigned long long)fuzz->steered_frames, (unsigned long long)fuzz->reflected_frames,
	       (unsigned long long)fuzz->given_frames, (unsigned long long)fuzz->ack_frames);
}

int main(int argc, char **argv)
{
	bool over_wire = argc == 6 && !strcmp(argv[1], "wire");
	static struct fuzz fuzz;
	uint64_t total, restored;

	if (!over_wire && (argc != 7 || strcmp(argv[1], "programs"))) {
		fprintf(stderr, "usage: fuzz programs XDP_PIN TC_PIN AGENT_PIN SEED FRAMES\n"
				"       fuzz wire IN OUT SEED FRAMES\n");
		return 2;
	}
	fuzz.dice.state = strtoull(argv[argc - 2], NULL, 10);
	total = strtoull(argv[argc - 1], NULL, 10);
	crc_init();
	read_input(&fuzz.corpus);
	if (!over_wire) {
		fuzz_programs(&fuzz, argv + 2, total);
		return 0;
	}
	restored = wire_fuzz(argv[2], argv[3], &fuzz.corpus, &fuzz.dice, total);
	printf("frames %llu restored %llu\n", (unsigned long long)total, (unsigned long long)restored);
	return 0;
}
