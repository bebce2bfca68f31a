"""What of a soak held, and what did not. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.shared.bus.buckets import stream_of
from manager.bus.registers import IN_CLUSTER, buckets
from manager.identity.authority import DEFAULT_POD
from tools.soak.judge import Judgement
from tools.soak.traffic import STILL_S, Traffic
from tools.soak.trend import FLAT_PER_H, S_PER_H, SETTLES_S, Trend, pooled, trend, unknown
from tools.soak.troubles import KINDS, Trouble
from tools.soak.watches.clocks import ClockWatch, SteeringWatch
from tools.soak.watches.holdings import QUANTITIES, HoldingsWatch, Series
from tools.soak.watches.leaders import Led, two_at_once, unled

MOST_OUTSIDE = 0.001
NO_LEADER, NO_LEADER_OF_SERVERS = "no leader", "no leader where a bus server was in trouble"
LEADERLESS_S, LEADERLESS_OF_SERVERS_S = 6.0, 10.0
"""The lease of who ended lapses after 3.5 s, and tries of others end later where a server is in trouble as well."""

CAUSE_S = 20.0
"""So long after a trouble of managers or bus servers began or ended another manager may lead for it."""

TOLD = 5

WRONG = ("missed", "false", "stale")
WITHOUT_AGENT = ("agent_killed", "agent_stopped", "agent_restarted", "host_left")
PUT_OUT = ("host_revoked",)
RESTARTED_AT_ONCE = ("agent_killed", "agent_restarted")
STARTS_WITHIN_S, CAUGHT_UP_S = 15.0, 5.0
"""An agent that is to run does so within the first; on a machine with far more to do than it can some took 11 s."""


Floats = NDArray[np.float64]

BOUNDED = {
    "history rings": "files of fixed size",
    "history history.sqlite": "a quarter of history.max_bytes (8 GiB), then the oldest records go",
    "history history.sqlite-wal": "16 MiB, then it is cut",
    "history history.sqlite-shm": "the index of that",
    "stream cwdp-history": "an eighth of history.max_bytes",
    "stream KV_cwdp-desired": "the last version of each host's document; what was replaced goes when a block is full",
    **{
        f"stream {stream_of(bucket)}": "the last version of one key; what was replaced goes when a block is full"
        for count in (1, IN_CLUSTER)
        for bucket in buckets(DEFAULT_POD, count)
    },
    "stream KV_cwdp-wishes": "the last version of each wish; what was replaced goes when a block is full",
    "stream KV_cwdp-credentials": "the last version of each host's keys; what was replaced goes when a block is full",
    "stream others": "JetStream's own log of its groups, compacted",
    "logs": "journald's, or logrotate's, bound",
}
"""Why each store is bounded, by design."""


@dataclass(frozen=True)
class Check:
    """One of the things that must hold."""

    what: str
    wanted: str
    found: str
    passed: bool


def clock_checks(
    watch: ClockWatch, hosts: Sequence[str], done: Sequence[Trouble], starts: Mapping[str, Sequence[float]]
) -> tuple[list[Check], dict[str, Any]]:
    """Of the clocks, with the figures; `starts` are when each host's agents began to run.

    While a host's agent does not run nobody follows what disciplines its clock, which no bound can know of
    (docs/troubleshooting.md); those readings are counted apart. So are readings without a bound while none runs, or the
    host is put out or joins.
    """
    errors, bounds = np.array(watch.errors_ns), np.array(watch.bounds_ns)
    times_s = np.array(watch.times_s)
    followed = _followed(times_s, hosts, done, starts)
    belongs = followed & ~_put_out(times_s, hosts, done)
    claimed = ~np.isnan(bounds)
    outside = claimed & (errors > bounds)
    share = float((outside & followed).sum() / max(1, (claimed & followed).sum()))
    unbounded = ~claimed & belongs
    missing = int(unbounded.sum())
    figures = {
        "samples": int(claimed.sum()),
        "late_readings": watch.late,
        "outside_share": share,
        "outside_share_without_agent": float(
            (outside & ~followed).sum() / max(1, (claimed & ~followed).sum())
        ),
        "without_bound": missing,
        "without_bound_without_agent": int((~claimed & ~belongs).sum()),
        "without_bound_of": [
            {"host": hosts[column], "at_s": round(watch.times_s[row], 1)}
            for row, column in np.argwhere(unbounded).tolist()
        ],
        "error_p50_ns": _quantile(errors[claimed], 0.5),
        "error_p99_ns": _quantile(errors[claimed & followed], 0.99),
        "error_max_ns": _quantile(errors[claimed & followed], 1.0),
        "bound_p50_ns": _quantile(bounds[claimed], 0.5),
        "bound_max_ns": _quantile(bounds[claimed], 1.0),
        "outside": _episodes(watch, outside, hosts),
    }
    checks = [
        Check(
            "clocks within their bounds", f"{1 - MOST_OUTSIDE:.1%}", f"{1 - share:.3%}", share <= MOST_OUTSIDE
        ),
        Check("clocks without a bound", "never", f"{missing} of {belongs.sum()} samples", not missing),
    ]
    return checks, figures


def _followed(
    times_s: Floats, hosts: Sequence[str], done: Sequence[Trouble], starts: Mapping[str, Sequence[float]]
) -> NDArray[np.bool_]:
    """At which readings a host's agent ran, and had for a while; shape (readings, hosts)."""
    followed = np.ones((len(times_s), len(hosts)), bool)
    for each in done:
        if each.kind in WITHOUT_AGENT:
            is_away = (times_s >= each.begin_s) & (times_s <= _runs_again_s(each, starts) + CAUGHT_UP_S)
            followed[is_away, hosts.index(each.target)] = False
    return followed


def _runs_again_s(trouble: Trouble, starts: Mapping[str, Sequence[float]]) -> float:
    """When the agent ran again that was away for a trouble."""
    if not KINDS[trouble.kind].ends_process:
        return trouble.end_s
    due_s = trouble.begin_s if trouble.kind in RESTARTED_AT_ONCE else trouble.end_s
    first_s = min((at_s for at_s in starts.get(trouble.target, ()) if at_s > due_s), default=due_s)
    return min(first_s, due_s + STARTS_WITHIN_S)


def _put_out(times_s: Floats, hosts: Sequence[str], done: Sequence[Trouble]) -> NDArray[np.bool_]:
    """At which readings a host did not belong to the fleet, or had just joined it; shape (readings, hosts)."""
    out = np.zeros((len(times_s), len(hosts)), bool)
    for each in done:
        if each.kind in PUT_OUT:
            is_then = (times_s >= each.begin_s) & (times_s <= each.end_s + CAUGHT_UP_S)
            out[is_then, hosts.index(each.target)] = True
    return out


def _episodes(watch: ClockWatch, outside: NDArray[np.bool_], hosts: Sequence[str]) -> list[dict[str, Any]]:
    """When which host was outside its bound, at how many readings, and by how much at the worst."""
    found: list[dict[str, Any]] = []
    for number, host in enumerate(hosts):
        for row in np.flatnonzero(outside[:, number]).tolist():
            at_s = watch.times_s[row]
            error, bound = (float(each[row][number]) for each in (watch.errors_ns, watch.bounds_ns))
            last = found[-1] if found and found[-1]["host"] == host else None
            if last is None or at_s - last["end_s"] > 1.0:
                last = {"host": host, "begin_s": round(at_s, 1), "readings": 0, "error_ns": 0}
                found.append(last)
            last |= {"end_s": round(at_s, 1), "readings": last["readings"] + 1}
            if error > last["error_ns"]:
                last |= {"error_ns": round(error), "bound_ns": round(bound)}
    return found


def _quantile(values: Floats, share: float) -> float | None:
    return round(float(np.quantile(values, share)), 1) if len(values) else None


def steering_checks(watch: SteeringWatch) -> list[Check]:
    """Of the queue pair that an operator steers."""
    lost = len(watch.lost_s)
    when = f", first at {watch.lost_s[0]:.0f} s" if lost else ""
    return [
        Check("steering in the dataplane", "always", f"not in {lost} of {watch.looks} looks{when}", not lost)
    ]


def leader_checks(
    led: Sequence[Led], done: Sequence[Trouble], end_s: float
) -> tuple[list[Check], dict[str, Any]]:
    """Of who leads, with the figures."""
    two, gaps = two_at_once(list(led)), unled(list(led), 0.0, end_s)
    causes = [_causes(from_s, done) for from_s, _ in gaps]
    of_servers = [
        any(each.kind not in KINDS or KINDS[each.kind].whom == "server" for each in of) for of in causes
    ]
    lasted_s = [until_s - from_s for from_s, until_s in gaps]
    idle = [f"{from_s:.0f} s" for (from_s, _), of in zip(gaps, causes, strict=True) if not of]
    longest_s, longest_of_servers_s = (
        max((each for each, is_of in zip(lasted_s, of_servers, strict=True) if is_of == wanted), default=0.0)
        for wanted in (False, True)
    )
    figures = {
        "leaders": len({each.epoch for each in led}),
        "without_s": [round(each, 2) for each in lasted_s],
        "longest_without_s": round(max(longest_s, longest_of_servers_s), 2),
        "longest_without_of_servers_s": round(longest_of_servers_s, 2),
        "longest_without_of_managers_s": round(longest_s, 2),
    }
    return [
        Check("two leaders at once", "never", _told(two) or "never", not two),
        _leaderless(NO_LEADER, longest_s, LEADERLESS_S),
        _leaderless(NO_LEADER_OF_SERVERS, longest_of_servers_s, LEADERLESS_OF_SERVERS_S),
        Check("no leader without cause", "never", _told(idle) or "never", not idle),
    ], figures


def _causes(from_s: float, done: Sequence[Trouble]) -> list[Trouble]:
    """Troubles of managers and bus servers for which nobody may lead from then on."""
    return [
        each
        for each in done
        if (each.kind not in KINDS or KINDS[each.kind].whom in ("manager", "server"))
        and each.begin_s - 1 <= from_s <= each.end_s + CAUSE_S
    ]


def _leaderless(what: str, longest_s: float, most_s: float) -> Check:
    return Check(what, f"at most {most_s:.0f} s", f"{longest_s:.1f} s at the longest", longest_s <= most_s)


def finding_checks(judged: Judgement) -> tuple[list[Check], dict[str, Any]]:
    """Of what was named, with the figures."""
    by_kind: dict[str, list[float]] = {}
    for kind, took_s in judged.named_s:
        by_kind.setdefault(kind, []).append(took_s)
    figures = {
        "named": {
            kind: {
                "count": len(took),
                "p50_s": _quantile(np.array(took), 0.5),
                "max_s": _quantile(np.array(took), 1.0),
            }
            for kind, took in sorted(by_kind.items())
        },
        **{name: list(getattr(judged, name)) for name in WRONG},
        **{f"{name}_count": len(getattr(judged, name)) for name in WRONG},
    }
    return [
        Check("faults named in time", "all", _told(judged.missed) or "all", not judged.missed),
        Check("false alarms", "none", _told(judged.false) or "none", not judged.false),
        Check("alarms that held on", "none", _told(judged.stale) or "none", not judged.stale),
    ], figures


def traffic_checks(traffic: Traffic) -> list[Check]:
    """Of the queue pairs."""
    lost = [*traffic.failed, *traffic.unacknowledged]
    strayed = ", ".join(map(str, traffic.strayed))
    return [
        Check("queue pairs lost, or messages", "none", _told(lost) or "none", not lost),
        Check(
            f"still for {STILL_S:.0f} s with live links",
            "none",
            _told(traffic.still) or f"{traffic.longest_still_s:.1f} s at the longest",
            not traffic.still,
        ),
        Check("packets with a wrong ICRC", "0", str(traffic.icrc_errors), not traffic.icrc_errors),
        Check("steered packets by other ports", "none", strayed or "none", not traffic.strayed),
    ]


def holding_checks(watch: HoldingsWatch, since_s: float) -> tuple[list[Check], list[dict[str, Any]]]:
    """Of what processes hold in the second half, with a row each."""
    checks, rows = [], []
    for quantity in QUANTITIES:
        for role in sorted({role for name, role in watch.processes if name == quantity}):
            samples = watch.processes[quantity, role]
            settles_s = SETTLES_S if quantity.endswith("_bytes") else 0.0
            found = trend(pooled(samples, since_s, settles_s)) or unknown(pooled(samples, since_s))
            if found is None:
                continue
            rows.append({"quantity": quantity, "role": role, **asdict(found), "verdict": found.verdict})
        growing = [
            _slope(row["role"], row)
            for row in rows
            if row["quantity"] == quantity and row["verdict"] == "grows"
        ]
        unsure = sum(row["quantity"] == quantity and row["verdict"] == "open" for row in rows)
        found_words = _told(growing) or (
            "flat" if not unsure else f"of {unsure} roles too little is known to tell"
        )
        name = quantity.replace("_", " ")
        checks.append(
            Check(f"{name} of processes", f"below {FLAT_PER_H:.0%} an hour", found_words, not growing)
        )
    for row in rows:
        row |= {key: None for key in ("low_per_h", "high_per_h") if not np.isfinite(row[key])}
    return checks, rows


def store_checks(watch: HoldingsWatch, since_s: float) -> tuple[list[Check], list[dict[str, Any]]]:
    """Of what lies on disk, in bpffs and among namespaces."""
    rows = [
        {"what": what, **_growth(series, since_s), "bound": BOUNDED.get(what)}
        for what, series in sorted(watch.stores.items())
    ]
    unbounded = [row["what"] for row in rows if row["bound"] is None and row["bytes_per_h"] > 0]
    checks = [
        Check("stores on disk", "bounded by design", _told(unbounded) or "all that grow are", not unbounded)
    ]
    for what, series in (("pins in bpffs", watch.pins), ("namespaces", watch.namespaces)):
        first, last = (int(series[i][1]) if series else 0 for i in (0, -1))
        checks.append(Check(what, "as many as before", f"{first}, then {last}", first == last))
    return checks, rows


def _growth(series: Series, since_s: float) -> dict[str, Any]:
    late = [pair for pair in series if pair[0] >= since_s] or list(series[-1:])
    (from_s, before), (until_s, after) = late[0], late[-1]
    per_h = (after - before) / (until_s - from_s) * S_PER_H if until_s > from_s else 0.0
    return {"bytes": int(after), "bytes_per_h": round(per_h)}


def _slope(name: str, row: Mapping[str, Any]) -> str:
    found = Trend(*(row[key] for key in ("level", "per_h", "low_per_h", "high_per_h")))
    return f"{name} {found.per_h:+.1%} ({found.low_per_h:+.1%} to {found.high_per_h:+.1%})"


def plain(what: str, wrong: Sequence[str]) -> Check:
    """Something of which nothing must be wrong."""
    return Check(what, "yes", _told(wrong) or "yes", not wrong)


def _told(items: Sequence[str]) -> str:
    more = f" and {len(items) - TOLD} more" if len(items) > TOLD else ""
    return "; ".join(items[:TOLD]) + more
