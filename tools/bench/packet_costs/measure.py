"""What BPF programs cost a packet beyond references: medians over interleaved repetitions.

A cost is the median of a program's mean duration under BPF_PROG_TEST_RUN minus that of its reference in the same
repetition, so that a change of the machine's speed meets both alike.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.dataplane.loading import loader
from tools.bench.figures import Figure, figure

BENCH_OBJECT = loader.OBJECT.with_name("bench.bpf.o")
REPETITIONS = 15
RUNS = 100_000
SKB_BYTES = 192
SKB_MARK_OFFSET = 8


@dataclass(frozen=True)
class Case:
    """A program over a packet, its reference over the same, and the most that it may cost beyond it."""

    name: str
    program: str
    reference: str
    packet: bytes
    target_ns: float | None
    mark: int = 0


@dataclass(frozen=True)
class Cost:
    """The cost beyond the reference, and what the reference takes itself."""

    ns: float
    reference_ns: float


def costs(obj: BpfObject, cases: Sequence[Case]) -> list[Cost]:
    """The cost of each case, measured by turns."""
    durations = np.array([[_durations(obj, case) for case in cases] for _ in range(REPETITIONS)])
    beyond = np.median(durations[:, :, 0] - durations[:, :, 1], axis=0)
    references = np.median(durations[:, :, 1], axis=0)
    return [Cost(float(ns), float(reference)) for ns, reference in zip(beyond, references, strict=True)]


def _durations(obj: BpfObject, case: Case) -> tuple[int, int]:
    """Mean durations in ns of the program and of its reference."""
    context = skb_context(case.mark) if case.program.startswith("tc") else b""
    measured = [
        libbpf.prog_test_run(obj.program_fd(name), case.packet, ctx=context, repeat=RUNS)[2]
        for name in (case.program, case.reference)
    ]
    return measured[0], measured[1]


def skb_context(mark: int) -> bytes:
    """A `struct __sk_buff` with that mark."""
    context = bytearray(SKB_BYTES)
    struct.pack_into("=I", context, SKB_MARK_OFFSET, mark)
    return bytes(context)


def cost_figure(name: str, value: float, unit: str, reference: float, target: float | None) -> Figure:
    """A cost with what it is compared to, both to a tenth."""
    return figure(name, value, unit, round(float(reference), 1), target, digits=1)
