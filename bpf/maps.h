/* SPDX-License-Identifier: GPL-2.0-only */
/* The maps, each pinned below /sys/fs/bpf/cwdp/NETNS/IFNAME/, and the settings fixed at load time. */
#pragma once

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "types.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CWDP_SLOTS);
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cwdp_meta);
} meta SEC(".maps");

/* UDP destination port of probes and their replies. */
volatile const __u16 probe_port = CWDP_ROCE_PORT;

/* A clock of its own for a host of the lab: local = raw + offset + (raw - base) * drift. Zero elsewhere. */
volatile const __u64 test_clock_base_ns = 0;
volatile const __s64 test_clock_offset_ns = 0;
volatile const __s64 test_clock_drift_q48 = 0;

volatile const struct cwdp_abi_types abi_types = {};
