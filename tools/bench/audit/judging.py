"""What judging the facts of a fleet costs, in the processor's time of the one thread that does it."""

import time
import tracemalloc
from collections.abc import Iterator
from datetime import date
from random import Random

from msgspec import msgpack

from cwdp.shared.audit.facts import HostFacts
from manager.audit.checks.loading import default_checks
from manager.audit.checks.model import Checks
from manager.audit.judging.judge import judge
from manager.audit.results import Audit
from tools.bench.figures import Figure, figure
from tools.sim.audit.faults import FAULTS, can_have, seed_fault
from tools.sim.audit.fleet import fleet

HOSTS, FAULTY = 10_000, 100
KINDS = ("h100",)
"""The kind with most facts: nine NICs, eight RDMA ports, eight GPUs."""

TARGET_S = 5.0
TODAY = date(2030, 1, 1)
FEW_HOSTS = 500
"""Of which the memory is measured, which takes long."""


def figures(hosts: int = HOSTS, faulty: int = FAULTY) -> Iterator[Figure]:
    """Half a minute."""
    started = time.process_time()
    checks = Checks(default_checks.__wrapped__())
    yield figure("audit.loading", 1e3 * (time.process_time() - started), "ms", len(checks.checks), None)
    facts = told(hosts)
    took_s, audit = timed(checks, facts)
    yield figure(f"audit.judging_{hosts}_hosts", took_s, "s", _counts(facts, audit, checks), TARGET_S)
    rng = Random(1)
    names = [name for name in sorted(FAULTS) if any(can_have(FAULTS[name], each) for each in facts[:1])]
    for number in range(faulty):
        facts, _ = seed_fault(facts, names[number % len(names)], rng)
    took_s, audit = timed(checks, facts)
    name = f"audit.judging_{hosts}_hosts_{faulty}_faults"
    yield figure(name, took_s, "s", _counts(facts, audit, checks), TARGET_S)
    few = facts[:FEW_HOSTS]
    tracemalloc.start()
    judge(checks, few, today=TODAY)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    in_all = peak_bytes / (1 << 20) * hosts / len(few)
    yield figure("audit.memory", in_all, "MiB", {"measured_hosts": len(few)}, None)


def told(hosts: int) -> list[HostFacts]:
    """Facts as they come over the bus: no two hosts share a value."""
    decoder = msgpack.Decoder(HostFacts)
    return [decoder.decode(msgpack.encode(facts)) for facts in fleet(hosts, 1, KINDS)]


def timed(checks: Checks, facts: list[HostFacts]) -> tuple[float, Audit]:
    """Processor time of judging, in s, and what came of it."""
    started = time.process_time()
    audit = judge(checks, facts, today=TODAY)
    return time.process_time() - started, audit


def _counts(facts: list[HostFacts], audit: Audit, checks: Checks) -> dict[str, int]:
    return {
        "checks": len(checks.checks),
        "subjects": sum(len(each.subjects) for each in facts),
        "facts": sum(len(subject.facts) for each in facts for subject in each.subjects),
        "verdicts": sum(audit.passed.values()) + len(audit.results),
        "findings": len(audit.results),
    }
