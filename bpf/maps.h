/* SPDX-License-Identifier: GPL-2.0-only */
/* The maps, each pinned below /sys/fs/bpf/cwdp/NETNS/IFNAME/, the settings fixed at load time, and what
 * looks up those of one entry. */
#pragma once

#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

#include "burst_types.h"
#include "types.h"

/* A word that another CPU or user space reads or writes at the same time: one access of its whole width,
 * which the compiler neither splits, repeats nor leaves out. Nothing else is ordered by it. */
#define READ_ONCE(word)         (*(const volatile typeof(word) *)&(word))
#define WRITE_ONCE(word, value) (*(volatile typeof(word) *)&(word) = (value))

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_SLOTS + CWDP_PULSE_SLOTS);
	__type(key, __u32);
	__type(value, struct cwdp_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_clock);
} clock SEC(".maps");

/* The curve of a lab's clock; its size is set at load time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_test_clock_step);
} test_clock SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CWDP_KEYS);
	__type(key, __u32);
	__type(value, struct cwdp_key);
} keys SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_counters);
} counters SEC(".maps");

/* Queue pairs by egress and by ingress; the sizes are set at load time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_QP_BUCKETS);
	__type(key, __u32);
	__type(value, struct cwdp_qp_bucket);
} qps_out SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_QP_BUCKETS);
	__type(key, __u32);
	__type(value, struct cwdp_qp_bucket);
} qps_in SEC(".maps");

/* The bursts under way, by place and direction; the size is set at load time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * CWDP_QP_BUCKETS * CWDP_QP_WAYS);
	__type(key, __u32);
	__type(value, struct cwdp_burst_start);
} burst_starts SEC(".maps");

/* And those that are over. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_BURSTS);
	__type(key, __u32);
	__type(value, struct cwdp_burst);
} bursts SEC(".maps");

/* Stands in where the table has no place for a queue pair. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_qp);
} qp_scratch SEC(".maps");

/* The beginning of a packet whose headers do not lie in one piece. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_beginning);
} beginnings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CWDP_STEER_MAX);
	__type(key, struct cwdp_qp_key);
	__type(value, struct cwdp_steer);
} steer SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_steered);
} steered SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_PATHS);
	__type(key, __u32);
	__type(value, struct cwdp_path);
} paths SEC(".maps");

/* Steered TCP connections by their numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_TCP_CONNS);
	__type(key, __u32);
	__type(value, struct cwdp_tcp_conn);
} tcp_conns SEC(".maps");

/* And their numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CWDP_TCP_CONNS);
	__type(key, struct cwdp_tcp_key);
	__type(value, __u32);
} tcp_out SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_tcp_steered);
} tcp_steered SEC(".maps");

/* The ports of connections that other hosts have announced, and for ICMP errors those of this host's own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CWDP_TCP_ANNOUNCED_MAX);
	__type(key, struct cwdp_tcp_wire_key);
	__type(value, struct cwdp_tcp_ports);
} tcp_in SEC(".maps");

/* What there is for a destination beside its path and its backup. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CWDP_DETOURS);
	__type(key, struct cwdp_address);
	__type(value, struct cwdp_detour);
} detours SEC(".maps");

/* The map `paths` of this host's other NIC, if it has one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(map_flags, BPF_F_MMAPABLE);
			__uint(max_entries, CWDP_PATHS);
			__type(key, __u32);
			__type(value, struct cwdp_path);
		});
} other_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_SAMPLES);
	__type(key, __u32);
	__type(value, struct cwdp_sample);
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_EVENTS);
	__type(key, __u32);
	__type(value, struct cwdp_event);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_SLICES);
	__type(key, __u32);
	__type(value, struct cwdp_slice);
} slices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_slice_table);
} slice_table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CWDP_JOB_QPS);
	__type(key, struct cwdp_qp_key);
	__type(value, struct cwdp_job);
} jobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_meta);
} meta SEC(".maps");

/* UDP destination port of probes and their replies. */
volatile const __u16 probe_port = CWDP_ROCE_PORT;

/* Buckets of qps_out and of qps_in, a power of two. */
volatile const __u32 qp_buckets = CWDP_QP_BUCKETS;

/* x^(8 (4 i - 2)) modulo the polynomial of CRC-32, bits reflected: what a change of the source port of a UDP
 * datagram of 4 i bytes is multiplied by to give the change of its ICRC. */
volatile const __u32 icrc_powers[CWDP_UDP_MAX / 4 + 1] = {};

/* A clock of its own for a host of the lab, as a curve in steps that come again and again: what
 * CLOCK_MONOTONIC would show there is mono + offset + phase(mono - base). A base of zero stands for no such
 * clock. */
volatile const __u32 test_clock_steps_log2 = 0;
volatile const __u64 test_clock_base_ns = 0;
volatile const __s64 test_clock_offset_ns = 0;
volatile const __s64 test_clock_cycle_q16 = 0; /* what the phase grows by in all steps */

volatile const struct cwdp_abi_types abi_types = {};

/* Which of two records is in force. Clang is not to know that there are two: on arm64 only an address that is
 * computed from it, not a branch, keeps a record from being read before it. */
static __always_inline __u32 active_of(const __u32 *active)
{
	__u32 index = READ_ONCE(*active) & 1;

	barrier_var(index);
	return index;
}

static __always_inline struct cwdp_control *find_control(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

static __always_inline struct cwdp_slice_table *find_slice_table(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&slice_table, &zero);
}

static __always_inline bool has_slices(void)
{
	struct cwdp_slice_table *table = find_slice_table();

	return table && table->enforcer != CWDP_ENFORCER_NONE;
}

/* The one place that counts. */
static __always_inline void count(enum cwdp_reason reason)
{
	__u32 zero = 0;
	struct cwdp_counters *totals = bpf_map_lookup_elem(&counters, &zero);

	if (totals)
		totals->count[reason]++;
}
