"""The command `cwdp`: one click program whose parts are imported only when they are called."""

import os

from cwdp.cli.lazy import LazyGroup, version_option

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Its threads, one a processor, spin between products as small as ours and make none of them faster; numpy starts them."""

COMMANDS = {
    "agent": ("cwdp.cli.agent:agent", "The service on each host."),
    "audit": ("cwdp.cli.audit.command:audit", "Whether every host, NIC and GPU is what it should be."),
    "clock": ("cwdp.cli.cluster.clock:clock", "Show every host's clock against the timeline."),
    "collective": (
        "cwdp.cli.jobs.collective:collective",
        "Show NCCL's collectives: how long, who was last, and why.",
    ),
    "dataplane": ("cwdp.cli.local.dataplane:dataplane", "The eBPF programs on this host's interfaces."),
    "doctor": ("cwdp.cli.local.doctor:doctor", "What works on this host, what does not, and why."),
    "event": ("cwdp.cli.cluster.event:event", "Show what happened to links, paths, clocks and agents."),
    "fabric": ("cwdp.cli.cluster.fabric:fabric", "Show switches, links and which NIC sits where."),
    "fleet": ("cwdp.cli.cluster.fleet:fleet", "Which hosts and people are let in."),
    "host": ("cwdp.cli.cluster.host:host", "Show hosts, their interfaces and counters."),
    "ib": ("cwdp.cli.local.ib:ib", "The InfiniBand fabric, as its management plane has it."),
    "job": ("cwdp.cli.cluster.job:job", "Show jobs: their iterations, and who makes the others wait."),
    "lab": ("tools.lab_cli:lab", "A leaf-spine fabric in network namespaces."),
    "link": ("cwdp.cli.cluster.link:link", "Show queues, loads and faults of the fabric's links."),
    "manager": ("cwdp.cli.manager:manager", "The service that decides for all hosts."),
    "owd": ("cwdp.cli.cluster.owd:owd", "Show the one-way delay of every path."),
    "path": ("cwdp.cli.cluster.path:path", "Show which source ports lead over which switches."),
    "qp": ("cwdp.cli.cluster.qp:qp", "Show RoCEv2 queue pairs: rates, marks, losses, delays."),
    "rdma": ("cwdp.cli.local.rdma:rdma", "The RDMA devices of this host, and their queue pairs."),
    "slice": ("cwdp.cli.local.slice:slice_", "Bandwidth slices of this host's interfaces."),
    "steer": ("cwdp.cli.local.steer:steer", "Which path each queue pair of this host takes."),
    "tcp": ("cwdp.cli.cluster.tcp:tcp", "Show TCP connections of named services."),
    "top": ("cwdp.cli.cluster.top:top", "The whole fleet in one screen, live."),
    "why": ("cwdp.cli.jobs.why:why", "Say why jobs are slow, and what speaks for it."),
}

main = LazyGroup(
    "cwdp",
    commands_by_path=COMMANDS,
    params=[version_option("cwdp")],
    help="Makes the Ethernet fabric under an AI training cluster visible and steerable from the host edge.",
)
