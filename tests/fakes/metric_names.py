"""The metrics that a manager has, with their labels, and whether a query asks for others."""

import re
from functools import cache
from typing import get_args

import numpy as np
from large_fleet import LargeFleet, add_finding, collector_of

from manager.causes.cause import Kind
from manager.faults.finding import Subject
from manager.jobs.flows import Flow
from manager.jobs.inference import Inferred, Job
from manager.jobs.stragglers import Lateness
from manager.jobs.symptoms import Symptoms
from manager.jobs.windows import SHORT
from manager.view.severity import severity

TARGET_LABELS = {"cluster", "instance", "job"}
"""Those that Prometheus adds."""

AGENTS_OWN = {"cwdp_dataplane_events_total", "cwdp_agent_events_total", "cwdp_agent_bus_messages_total"}
"""Their reasons are what agents say."""

FREE = {"subject", "leaf", "rail", "version", "job_name", "nic"}
"""Labels whose values are the fabric's names, jobs', or the build's."""

_SELECTOR = re.compile(r"\b(cwdp_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


@cache
def known_metrics() -> dict[str, dict[str, set[str]]]:
    """The values of each label of each metric that a manager with hosts, links and findings exports."""
    state = LargeFleet(hosts=8, rails=2, hosts_per_leaf=4, leaves_per_pod=2).state(findings=7)
    add_finding(state, "slow_receiver", Subject("host", "h1"))
    state.jobs.take(Inferred([_job()]))
    found: dict[str, dict[str, set[str]]] = {}
    for family in collector_of(state).scrape({}).collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    for name in AGENTS_OWN:
        found.setdefault(name, {}).setdefault("reason", set())
    for name in ("min", "p50", "p99"):
        found.setdefault(f"cwdp_owd_{name}_seconds", {"quantile": {"0.5", "0.99", "1.0"}})
    found.setdefault("cwdp_job_cause_costs_seconds", {"job_name": {"h1"}, "kind": set(get_args(Kind))})
    found.setdefault("cwdp_clock_bound_seconds", {"quantile": {"0.5", "0.99", "1.0"}})
    assert severity("dead") in found["cwdp_findings"]["severity"]
    return found


def _job() -> Job:
    """One that waits for a rank."""
    return Job(
        named="",
        owners=frozenset(),
        flows=(Flow("h1/nic0", "h2/nic0", 7),),
        sent_bytes={"h1/nic0": 10**9},
        communicators=(),
        starts_ns=10**9 * np.arange(9, dtype=np.int64),
        changes=(),
        ranks=(Lateness("h1/nic0", 10**8, is_straggler=True),),
        confidence=0.9,
        likeness=0.9,
        window=SHORT,
        lately=Symptoms(),
    )


def metrics_in(query: str) -> set[str]:
    """The metrics of ours that a query names."""
    return {name for name, _ in _SELECTOR.findall(query)}


def wrong_selectors(query: str) -> list[str]:
    """What a query asks for and no manager has: a metric, a label, a value of a label."""
    known, wrong = known_metrics(), []
    for name, matchers in _SELECTOR.findall(query):
        if name not in known:
            wrong.append(name)
            continue
        for label, operator, value in _MATCHER.findall(matchers):
            if label in TARGET_LABELS or "$" in value:
                continue
            values = known[name].get(label)
            if values is None:
                wrong.append(f"{name}: {label}")
            elif label not in FREE and not (name in AGENTS_OWN and label == "reason"):
                wrong += [
                    f"{name}: {label}={each}"
                    for each in _asked(operator, value)
                    if not _is_there(each, values)
                ]
    return wrong


def _asked(operator: str, value: str) -> list[str]:
    return [pattern for pattern in value.split("|") if pattern] if "~" in operator else [re.escape(value)]


def _is_there(pattern: str, values: set[str]) -> bool:
    return any(re.fullmatch(pattern, value) for value in values)
