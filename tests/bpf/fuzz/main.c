/* SPDX-License-Identifier: Apache-2.0 */
/* Mutated frames through the programs of a loaded dataplane that need no context, each judged by an oracle of
 *its own.
 *
 *	fuzz XDP_PIN TC_PIN AGENT_PIN SEED FRAMES
 *
 * where AGENT_PIN is the program of TC_PIN for packets of the agent's own sockets. It reads what is steered
 *and the frames to start from on standard input, a line each:
 *
 *	steered ADDRESS QPN PORT FLOW_LABEL   address in hexadecimal, 16 bytes
 *	frame BYTES                           in hexadecimal
 *
 * and writes a few frames that it steered and whose ICRC had been right ("steered BYTES"), then "frames N
 *steered N reflected N", or "wrong WHAT VERDICT BEFORE AFTER", and exits with 1. */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutate.h"

#define CORPUS_MAX  256
#define STEERED_MAX 64
#define LINE_MAX    (2 * FRAME_MAX + 64)
#define SHOWN       1000
#define PROBE_MARK  0x43574450

struct fuzz {
	int xdp;
	int tc;
	int agent;
	struct dice dice;
	struct frame corpus[CORPUS_MAX];
	size_t corpus_total;
	struct steered steered[STEERED_MAX];
	struct rules rules;
	uint64_t steered_frames;
	uint64_t shown_frames;
	uint64_t reflected_frames;
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

static void read_input(struct fuzz *fuzz)
{
	static char line[LINE_MAX];
	char address[33];
	unsigned int qpn, port, label;

	fuzz->rules.steered = fuzz->steered;
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "steered %32s %u %u %u", address, &qpn, &port, &label) == 4 &&
		    fuzz->rules.total < STEERED_MAX) {
			struct steered *steered = &fuzz->steered[fuzz->rules.total++];

			from_hex(address, steered->address, sizeof(steered->address));
			steered->qpn = qpn;
			steered->port = port;
			steered->flow_label = label;
		} else if (!strncmp(line, "frame ", 6) && fuzz->corpus_total < CORPUS_MAX) {
			struct frame *frame = &fuzz->corpus[fuzz->corpus_total++];

			frame->length = from_hex(line + 6, frame->bytes, sizeof(frame->bytes));
		}
	}
	if (!fuzz->rules.total || !fuzz->corpus_total) {
		fprintf(stderr, "nothing to start from on standard input\n");
		exit(2);
	}
}

static int run(int program, const struct frame *in, struct frame *out, __u32 mark)
{
	struct __sk_buff context = {.mark = mark};
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
	if (!oracle_steers(&fuzz->rules, in))
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
	static struct frame in, out;
	int verdict;

	mutate(&fuzz->dice, fuzz->corpus, fuzz->corpus_total, &fuzz->rules, &in);
	verdict = run(fuzz->xdp, &in, &out, 0);
	judge(oracle_ingress(&in, &out, verdict), verdict, &in, &out);
	fuzz->reflected_frames += verdict == XDP_TX;
	if (!dice_below(&fuzz->dice, 8)) {
		verdict = run(fuzz->agent, &in, &out, PROBE_MARK);
		judge(oracle_probe_egress(&in, &out, verdict), verdict, &in, &out);
		return;
	}
	verdict = run(fuzz->tc, &in, &out, dice_below(&fuzz->dice, 8) ? 0 : PROBE_MARK);
	judge(oracle_egress(&fuzz->rules, &in, &out, verdict), verdict, &in, &out);
	show_steered(fuzz, &in, &out);
}

int main(int argc, char **argv)
{
	static struct fuzz fuzz;
	uint64_t total;

	if (argc != 6) {
		fprintf(stderr, "usage: fuzz XDP_PIN TC_PIN AGENT_PIN SEED FRAMES\n");
		return 2;
	}
	fuzz.xdp = bpf_obj_get(argv[1]);
	fuzz.tc = bpf_obj_get(argv[2]);
	fuzz.agent = bpf_obj_get(argv[3]);
	if (fuzz.xdp < 0 || fuzz.tc < 0 || fuzz.agent < 0)
		fail("open program");
	fuzz.dice.state = strtoull(argv[4], NULL, 10);
	total = strtoull(argv[5], NULL, 10);
	crc_init();
	read_input(&fuzz);
	for (uint64_t i = 0; i < total; i++)
		fuzz_one(&fuzz);
	printf("frames %llu steered %llu reflected %llu\n", (unsigned long long)total,
	       (unsigned long long)fuzz.steered_frames, (unsigned long long)fuzz.reflected_frames);
	return 0;
}
