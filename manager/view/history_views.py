"""What the HTTP API answers of the past: the same shapes as of now, with what is not kept left out as null."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from cwdp.shared.bus.messages import host_of
from manager.fabric.routes import is_nic
from manager.history.measured import Measurement
from manager.history.queries import Elements
from manager.history.records import FindingRecord
from manager.view import link_table, link_views
from manager.view.json_values import Json, rounded
from manager.view.link_table import SHARE_DIGITS
from manager.view.severity import state_rank, worst_state


def links(found: Measurement, findings: Sequence[FindingRecord], *, sort: str, limit: int) -> Json:
    """Every link as it was, and the findings that held."""
    held = held_findings(findings)
    shown = link_views.rows(link_table.of_then(found, held), sort=sort, limit=limit)
    return {**shown, "findings": held, "from_s": found.time_s, "lasts_s": found.lasts_s}


def held_findings(findings: Sequence[FindingRecord]) -> list[Json]:
    """Findings as they were: nobody knew their ends."""
    return [finding(each) | {"end_s": None} for each in findings]


def leaf_pairs(found: Measurement) -> Json:
    """The delays between leaves as they were."""
    rows = [
        {
            "src_leaf": src,
            "dst_leaf": dst,
            **{name: rounded(found.values[name][i]) for name in ("owd_min_ns", "owd_p50_ns", "owd_p99_ns")},
            "loss": _share(found.values["loss"][i]),
        }
        for i, (src, dst) in enumerate(found.names)
    ]
    return {"pairs": rows, "from_s": found.time_s, "lasts_s": found.lasts_s}


def series(starts_s: Sequence[float], lasts_s: int, values: dict[str, Any]) -> Json:
    """What was measured of one thing over time; null for unknown."""
    columns = {
        name: [_share(value) if name == "loss" else rounded(value) for value in column]
        for name, column in values.items()
    }
    return {"from_s": list(starts_s), "lasts_s": lasts_s, **columns}


def finding(record: FindingRecord) -> Json:
    """A finding, with the keys that one of now has."""
    known: Json = msgspec.to_builtins(record)
    return {key: value for key, value in known.items() if key not in ("type", "time_s")}


def hosts_of(record: FindingRecord) -> set[str]:
    """The hosts that a finding is, or may be, about."""
    subjects = record.subject, *record.also
    names = {each.name for each in subjects if each.kind in ("host", "nic")}
    names |= {end for each in subjects for link in each.links for end in link if is_nic(end)}
    return {host_of(name) or name for name in names}


def fabric(known: Elements, findings: Sequence[FindingRecord], time_s: float) -> Json:
    """The fabric as it was known, with the state of each link: what was wrong with it, or that it was avoided."""
    wrong = _wrong(findings, also="suspected")
    avoided = {(each["a"], each["b"]) for each in known["avoided"].values()}
    nics_at = defaultdict[str, list[str]](list)
    for nic, seat in known["seat"].items():
        for switch in seat["switches"]:
            nics_at[switch].append(nic)

    def state(a: str, b: str) -> str:
        ways = {(a, b), (b, a)}
        kinds = [wrong[way] for way in ways if way in wrong]
        return min(kinds, key=state_rank) if kinds else "avoided" if ways & avoided else "ok"

    switches = [{"name": name, **data, "nics": nics_at[name]} for name, data in known["switch"].items()]
    return {
        "version": None,
        "path_count": None,
        "nic_count": len(known["seat"]),
        "switches": sorted(switches, key=lambda row: (row["tier"], row["name"])),
        "links": [each | {"state": state(each["a"], each["b"])} for each in known["cable"].values()],
        "rails": [{"ifname": name, **data} for name, data in known["rail"].items()],
        "suspects": list(known["suspect"].values()),
        "set_aside": sorted(known["aside"]),
        "avoided": list(known["avoided"].values()),
        "findings": held_findings(findings),
        "traces": {},
        "at_s": time_s,
    }


def _wrong(findings: Sequence[FindingRecord], *, also: str = "") -> dict[tuple[str, str], str]:
    """The gravest kind of finding about each link; of those that cannot be told from its subject `also`, if given."""
    kinds: dict[tuple[str, str], str] = {}
    for each in findings:
        for subject in (each.subject, *each.also):
            kind = each.kind if subject is each.subject or not also else also
            for a, b in subject.links:
                kinds[a, b] = worst_state([kinds.get((a, b), kind), kind])
    return kinds


def _share(value: float) -> float | None:
    return round(float(value), SHARE_DIGITS) if math.isfinite(value) else None
