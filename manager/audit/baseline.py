"""What one host is like, as checks for all hosts of its hardware. Pure."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from cwdp.shared.audit.catalogue import CATALOGUE
from cwdp.shared.audit.facts import HostFacts, Subject, Value
from manager.audit.judging.values import Garbled, sane

OWN = frozenset(
    {
        "host.bus_rtt_ns",
        "host.gateways_silent",
        "host.dns_silent",
        "host.command_line",
        "host.clock_bound_ns",
        "host.clock_synchronised",
        "host.memory_bytes",
        "nic.pci_address",
        "nic.pcie_errors",
        "nic.irqs",
        "nic.irqs_off_node",
        "nic.carrier_changes",
        "nic.addresses",
        "nic.routes",
        "nic.leaf",
        "nic.leaf_expected",
        "nic.rail",
        "nic.module",
        "nic.module_serial",
        "nic.module_temperature_c",
        "nic.module_rx_power_dbm",
        "nic.module_tx_power_dbm",
        "nic.rx_errors",
        "nic.rx_crc_errors",
        "nic.tx_errors",
        "nic.growing_errors",
        "rdma.netdev",
        "rdma.out_of_sequence",
        "rdma.ack_timeouts",
        "rdma.symbol_errors",
        "rdma.link_downed",
        "rdma.growing_errors",
        "gpu.uuid",
        "gpu.pci_address",
        "gpu.pcie_gtps",
        "gpu.ecc_uncorrected",
        "gpu.nvlink_errors",
        "gpu.throttled_by",
    }
)
"""Facts that are a host's own, or change by themselves: serial numbers, addresses, counters, temperatures."""

MODEL = ("host.product", "host.cpu_model")
TOLD_BY = {"nic": "device", "rdma": "device_type", "gpu": "product"}
MEMORY_SHARE = 0.02
"""The kernel keeps more or less of the memory for itself, by so much."""


def baseline(facts: HostFacts) -> str:
    """A TOML text of checks that this host passes, and that hosts of its product, processor, NICs and GPUs ought to pass.

    NICs, ports and GPUs that are alike on the host share a check; those that differ have one each, by their names. Facts
    that make no sense are left out.
    """
    taken = datetime.fromtimestamp(facts.taken_s, UTC) if math.isfinite(facts.taken_s) else None
    told = f"{taken:%Y-%m-%d %H:%M} UTC" if taken else "a time that is not known"
    head = [
        f"# Baseline of host {json.dumps(facts.host)[1:-1]}, from its facts of {told}.",
        "# Its checks are about hosts of the same product and processor, and parts of the same kind.",
        "",
    ]
    host = next((subject for subject in facts.subjects if subject.kind == "host"), Subject(kind="host"))
    model: dict[str, Value] = {name: word for name in MODEL if (word := _text(host, name.partition(".")[2]))}
    blocks = [*_of_host(host, model), *_of_parts(facts, model)]
    return "\n".join([*head, *blocks])


def _of_host(host: Subject, model: Mapping[str, Value]) -> Iterator[str]:
    for name, value in sorted(host.facts.items()):
        fact = f"host.{name}"
        when = {key: wanted for key, wanted in model.items() if key != fact}
        if fact == "host.memory_bytes" and not isinstance(sane(value, "number"), Garbled):
            assert isinstance(value, int | float)
            yield _check(
                "baseline-host-memory-bytes",
                fact,
                {"min": math.floor(value - MEMORY_SHARE * abs(value))},
                when,
            )
        elif _is_told(fact, value) and fact not in MODEL:
            yield _check(f"baseline-host-{_words(name)}", fact, {"value": value}, when)


def _of_parts(facts: HostFacts, model: Mapping[str, Value]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[Subject]] = {}
    for subject in facts.subjects:
        if subject.kind != "host":
            part = _text(subject, TOLD_BY[subject.kind])
            groups.setdefault((subject.kind, part, subject.role), []).append(subject)
    for number, ((kind, part, role), subjects) in enumerate(sorted(groups.items()), 1):
        told_by = TOLD_BY[kind]
        for name in sorted({name for subject in subjects for name in subject.facts}):
            fact = f"{kind}.{name}"
            if name == told_by:
                continue
            when = {**model, **({f"{kind}.{told_by}": part} if part else {})}
            limits: dict[str, Value] = {"role": role} if role and kind != "gpu" else {}
            if not part or (not role and kind != "gpu"):
                limits["subjects"] = [_exactly(subject.name) for subject in subjects]
            for suffix, more, value in _values(name, subjects):
                title = f"baseline-{kind}-{number}-{_words(name)}{suffix}"
                yield _check(title, fact, {"value": value}, when, {**limits, **more})


def _values(name: str, subjects: Sequence[Subject]) -> Iterator[tuple[str, dict[str, Value], Value]]:
    """One value for all, or one each."""
    have = [subject for subject in subjects if name in subject.facts]
    have = [subject for subject in have if _is_told(f"{subject.kind}.{name}", subject.facts[name])]
    values = {json.dumps(_plain(subject.facts[name])) for subject in have}
    if len(values) == 1 and len(have) == len(subjects):
        yield "", {}, have[0].facts[name]
        return
    for place, subject in enumerate(have):
        yield f"-{place}", {"subjects": _exactly(subject.name)}, subject.facts[name]


def _text(subject: Subject, name: str) -> str:
    value = subject.facts.get(name, "")
    return value if isinstance(value, str) and not isinstance(sane(value, "text"), Garbled) else ""


def _is_told(fact: str, value: Value) -> bool:
    """Whether a fact ought to be the same on like hosts, and makes sense."""
    known = CATALOGUE.get(fact)
    return known is not None and fact not in OWN and not isinstance(sane(value, known.kind), Garbled)


def _exactly(name: str) -> str:
    """A pattern (`fnmatch`) that fits this name only."""
    return "".join(f"[{each}]" if each in "*?[" else each for each in name)


def _check(
    name: str,
    fact: str,
    wanted: Mapping[str, Value],
    when: Mapping[str, Value],
    limits: Mapping[str, Value] | None = None,
) -> str:
    lines = ["[[check]]", f"name = {_toml(name)}", f"fact = {_toml(fact)}"]
    lines += [f"{key} = {_toml(value)}" for key, value in (limits or {}).items()]
    if when:
        lines.append(
            "when = { " + ", ".join(f"{_toml(key)} = {_toml(value)}" for key, value in when.items()) + " }"
        )
    lines += [f"{key} = {_toml(value)}" for key, value in wanted.items()]
    lines += [
        'severity = "fail"',
        f'why = "{CATALOGUE[fact].area}: it is so on the host of the baseline"',
        "",
    ]
    return "\n".join(lines)


def _words(name: str) -> str:
    return name.replace("_", "-")


def _plain(value: Value) -> object:
    return sorted(value, key=str) if isinstance(value, list | tuple) else value


def _toml(value: Value) -> str:
    """A value as TOML; texts as basic strings, whose escapes are those of JSON but for DEL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # A lone surrogate is no character of TOML's.
        clean = value.encode("utf-8", "replace").decode("utf-8")
        return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    return f"[{', '.join(_toml(each) for each in value)}]"
