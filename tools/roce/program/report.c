/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#define NS_PER_S  1000000000ull
#define NS_PER_US 1000ull

static const char *separator(size_t index)
{
	return index ? "," : "";
}

static void print_number(const char *name, uint64_t value)
{
	printf(",\"%s\":%" PRIu64, name, value);
}

void report_event(const char *name)
{
	printf("{\"event\":\"%s\"}\n", name);
	fflush(stdout);
}

void report_snapshot(const struct host *host, uint64_t now_ns)
{
	const struct plan *plan = host->plan;

	printf("{\"event\":\"snapshot\"");
	print_number("at_ns", now_ns);
	printf(",\"acked\":[");
	for (size_t i = 0; i < plan->requester_total; i++) {
		const struct requester *requester = &plan->requesters[i];

		printf("%s[%u,%" PRIu64 ",%" PRIu64 "]", separator(i), requester->qp.id,
		       requester_acked_bytes(requester), requester->retransmitted_packets);
	}
	printf("],\"delivered\":[");
	for (size_t i = 0; i < plan->responder_total; i++) {
		const struct responder *responder = &plan->responders[i];

		printf("%s[%u,%" PRIu64 "]", separator(i), responder->qp.id, responder->bytes);
	}
	printf("]}\n");
	fflush(stdout);
}

void report_iteration(const struct rank *rank, uint64_t now_ns)
{
	printf("{\"event\":\"iteration\"");
	print_number("rank", rank->id);
	print_number("iteration", rank->iteration);
	print_number("start_ns", rank->start_ns);
	print_number("end_ns", now_ns);
	printf(",\"steps\":[");
	for (size_t i = 0; i < rank->step_total; i++)
		printf("%s[%" PRIu64 ",%" PRIu64 "]", separator(i), rank->steps[i].ready_ns,
		       rank->steps[i].begun_ns);
	printf("]}\n");
	fflush(stdout);
}

/* Pairs of a duration and how often it was. */
static void print_histogram(const char *name, const struct histogram *histogram)
{
	size_t printed = 0;

	printf(",\"%s\":{\"max_ns\":%" PRIu64 ",\"counts\":[", name, histogram->max_ns);
	for (uint32_t bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++)
		if (histogram->counts[bucket])
			printf("%s[%" PRIu64 ",%u]", separator(printed++), histogram_middle_ns(bucket),
			       histogram->counts[bucket]);
	printf("]}");
}

static void print_ports(const struct qp *qp)
{
	printf(",\"sports\":[");
	for (uint32_t i = 0; i < qp->port_total; i++) {
		const struct port_count *count = &qp->ports[i];

		printf("%s{\"port\":%u", separator(i), count->port);
		print_number("packets", count->packets);
		print_number("first_ns", count->first_ns);
		print_number("last_ns", count->last_ns);
		printf("}");
	}
	printf("]");
}

static void print_go_backs(const struct requester *requester)
{
	printf(",\"go_backs\":[");
	for (size_t i = 0; i < requester->go_back_total && i < LOG_LIMIT; i++) {
		const struct go_back *event = &requester->go_backs[i];

		printf("%s{\"cause\":\"%s\"", separator(i), event->timeout ? "timeout" : "nak");
		print_number("at_ns", event->at_ns);
		print_number("psn", event->psn);
		print_number("packets", event->packets);
		print_number("first_sent_ns", event->first_sent_ns);
		print_number("last_sent_ns", event->last_sent_ns);
		printf("}");
	}
	printf("]");
}

static void print_requester(const struct requester *requester)
{
	printf("{\"id\":%u,\"failed\":%s", requester->qp.id, requester->failed ? "true" : "false");
	print_number("first_ns", requester->first_ns);
	print_number("last_ns", requester->last_ns);
	print_number("acked_bytes", requester_acked_bytes(requester));
	print_number("messages", requester->messages);
	print_number("sent_packets", requester->sent_packets);
	print_number("retransmitted_packets", requester->retransmitted_packets);
	print_number("acks", requester->acks);
	print_number("naks", requester->naks);
	print_number("cnps", requester->cnps);
	print_number("timeouts", requester->timeouts);
	print_number("go_back_total", requester->go_back_total);
	print_histogram("completion", &requester->completion);
	print_ports(&requester->qp);
	print_go_backs(requester);
	printf("}");
}

static void print_gaps(const struct responder *responder)
{
	printf(",\"gaps\":[");
	for (size_t i = 0; i < responder->gap_total && i < LOG_LIMIT; i++) {
		const struct gap *gap = &responder->gaps[i];

		printf("%s{\"overtaken\":%s", separator(i), gap->overtaken ? "true" : "false");
		print_number("at_ns", gap->at_ns);
		print_number("psn", gap->psn);
		print_number("missing", gap->missing);
		print_number("last_arrival_ns", gap->last_arrival_ns);
		print_number("last_lost_sent_ns", gap->last_lost_sent_ns);
		print_number("resumed_ns", gap->resumed_ns);
		printf("}");
	}
	printf("]");
}

static void print_pauses(const struct responder *responder)
{
	size_t printed = 0;

	printf(",\"pauses\":[");
	for (size_t i = 0; i < PAUSES_KEPT; i++) {
		const struct pause *pause = &responder->pauses[i];

		if (pause->lasted_ns)
			printf("%s[%" PRIu64 ",%" PRIu64 "]", separator(printed++), pause->start_ns,
			       pause->lasted_ns);
	}
	printf("]");
}

static void print_responder(const struct responder *responder)
{
	printf("{\"id\":%u", responder->qp.id);
	print_number("first_ns", responder->first_ns);
	print_number("last_ns", responder->last_ns);
	print_pauses(responder);
	print_number("packets", responder->packets);
	print_number("bytes", responder->bytes);
	print_number("messages", responder->messages);
	print_number("duplicates", responder->duplicates);
	print_number("out_of_sequence", responder->out_of_sequence);
	print_number("ce", responder->ce);
	print_number("acks", responder->acks);
	print_number("naks", responder->naks);
	print_number("cnps", responder->cnps);
	print_number("gap_total", responder->gap_total);
	print_number("gaps_overtaken", responder->gaps_overtaken);
	print_histogram("owd", &responder->owd);
	print_ports(&responder->qp);
	print_gaps(responder);
	printf("}");
}

static uint64_t cpu_ns(const struct timeval *time)
{
	return time->tv_sec * NS_PER_S + time->tv_usec * NS_PER_US;
}

static void print_host(const struct host *host)
{
	const struct host_counters *counters = &host->counters;
	struct rusage usage;
	uint64_t lost = 0;

	for (int i = 0; i < host->ring_total; i++)
		lost += host->rings[i].lost;
	getrusage(RUSAGE_SELF, &usage);
	print_number("user_cpu_ns", cpu_ns(&usage.ru_utime));
	print_number("system_cpu_ns", cpu_ns(&usage.ru_stime));
	print_number("not_ours", counters->not_ours);
	print_number("malformed", counters->malformed);
	print_number("unknown_qp", counters->unknown_qp);
	print_number("unknown_opcode", counters->unknown_opcode);
	print_number("icrc_errors", counters->icrc_errors);
	print_number("checksum_errors", counters->checksum_errors);
	print_number("receive_overruns", lost);
}

void report_result(const struct host *host)
{
	const struct plan *plan = host->plan;

	printf("{\"event\":\"result\"");
	print_host(host);
	printf(",\"send\":[");
	for (size_t i = 0; i < plan->requester_total; i++) {
		fputs(separator(i), stdout);
		print_requester(&plan->requesters[i]);
	}
	printf("],\"receive\":[");
	for (size_t i = 0; i < plan->responder_total; i++) {
		fputs(separator(i), stdout);
		print_responder(&plan->responders[i]);
	}
	printf("]}\n");
	fflush(stdout);
}
