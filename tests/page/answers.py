"""What the synthetic manager answers to each question of docs/http.md."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from bursts import causes, iterations, job_series
from synthetic import HISTORY_S, METRICS, SCALES, Json, RefusedError, Synthetic, text

Query = Mapping[str, str]


def answer(world: Synthetic, path: str, query: Query) -> Json:
    """Answer one question.

    Raises:
        RefusedError: it cannot be answered.
    """
    if path not in ANSWERS:
        raise RefusedError(404, f"nothing is at /v1/{path}", "see docs/http.md")
    if "at" in query:
        _within(query["at"])
    return ANSWERS[path](world, query)


def _within(at: str) -> None:
    now_s = time.time()
    at_s = float(at) if not at.startswith("-") else now_s + float(at)
    if not now_s - HISTORY_S <= at_s <= now_s + 1:
        raise RefusedError(
            400, "that is outside the history of links", "it spans 2 weeks; give a time within"
        )


def short_fleet(world: Synthetic, query: Query) -> Json:
    findings = [] if "at" in query else world.findings()
    wrong = (
        f"{len(findings)} findings, 2 of them critical: {findings[0]['title']}"
        if findings
        else "All well then."
    )
    return {
        "at_s": float(query.get("at", time.time())),
        "is_live": "at" not in query,
        "cluster": "synthetic",
        "verdict": {"severity": "critical" if findings else "ok", "text": wrong},
        "notices": world.notices,
        "hosts": {"up": len(world.hosts) - 1, "lost": 1},
        "nics": {"probed": len(world.hosts) - 3, "not_probed": 3, "known": len(world.hosts)},
        "links": len(list(world.links())),
        "switches": len(world.leaves) + len(world.spines),
        "queue_pairs": 960,
        "clocks": {"synced": len(world.hosts) - 2, "holdover": 1, "unsynced": 0, "set_aside": 1},
        "findings": findings,
        "finding_count": len(findings),
        "versions": {"matrix": world.version, "findings": 1},
    }


def _fleet(world: Synthetic, query: Query) -> Json:
    links = sorted(
        (world.link(*each) for each in world.links()), key=lambda row: (row["state"] == "ok", row["a"])
    )
    return short_fleet(world, query) | {
        "worst_links": links[:20],
        "slowest_queue_pairs": [world.qp(i) for i in range(20)],
        "jobs": [world.job(i) for i in range(3)],
    }


def _matrix(world: Synthetic, query: Query) -> Json:
    metric = query.get("metric", "spread")
    if metric not in METRICS:
        raise RefusedError(400, f"metric: {metric!r} is none", f"one of {', '.join(METRICS)}")
    codes, known = world.codes[metric], int(query.get("from", -1))
    if known in range(world.version) and known + 1 in world.changes:
        cells = sorted(
            {cell for version in range(known + 1, world.version + 1) for cell in world.changes[version]}
        )
        return {"version": world.version, "from": known, "cells": cells, "codes": text(codes[cells])}
    lowest, ratio, unit = SCALES[metric]
    names, order = world.leaves, np.argsort(-codes.astype(int), kind="stable")[:50]
    return {
        "version": world.version,
        "metric": metric,
        "unit": unit,
        "names": names,
        "members": None,
        "codes": text(codes),
        "lowest": lowest,
        "ratio": ratio,
        "from_s": time.time() - 10,
        "lasts_s": 10,
        "worst": [
            {
                "src": names[cell // len(names)],
                "dst": names[cell % len(names)],
                "value": lowest * ratio ** (int(codes[cell]) - 2),
            }
            for cell in order.tolist()
        ],
    }


def _map(world: Synthetic, query: Query) -> Json:
    tiers = [(1, world.leaves), (2, world.spines)]
    shown = world.leaves if len(world.leaves) <= 24 or "leaves" in query.get("open", "") else None
    groups = [_group(world, name, 1) for name in shown] if shown else [_grouped(world)]
    links: list[Json] = []
    for leaf in shown or [world.leaf(1)]:
        for spine in world.spines:
            row = world.link(leaf, spine)
            links.append(
                {
                    "a": leaf if shown else "leaves",
                    "b": spine,
                    "count": 1 if shown else len(world.leaves),
                    "avoided": int(row["state"] == "avoided"),
                    "worst": {"a": leaf, "b": spine},
                }
                | {key: row[key] for key in ("state", "queue_p99_ns", "share", "load_bps")}
            )
    return {
        "tiers": [
            {"tier": 1, "groups": groups},
            {"tier": 2, "groups": [_group(world, name, 2) for name in tiers[1][1]]},
        ],
        "links": links,
        "nics": [{"a": group["id"], "count": group["nics"]} for group in groups],
        "suspects": [
            {
                "what": "h3/nic0",
                "at": world.leaf(1),
                "expected": world.leaf(0),
                "reason": "its rail is elsewhere",
            }
        ],
        "set_aside": [],
        "avoided": [{"a": world.spine(1), "b": world.leaf(1)}],
        "rails": [{"ifname": "nic0", "leaves": world.leaves[:4]}],
        "findings": world.findings(),
    }


def _group(world: Synthetic, name: str, tier: int) -> Json:
    state = "silent" if name == world.leaf(1) else "lossy" if name == world.leaf(2) else "ok"
    return {
        "id": name,
        "label": name,
        "members": 1,
        "names": [name],
        "is_open": False,
        "switch": name,
        "nics": 4 if tier == 1 else 0,
        "state": state,
        "answers": name != world.spines[-1],
    }


def _grouped(world: Synthetic) -> Json:
    about = {
        "members": len(world.leaves),
        "names": world.leaves[:4],
        "nics": len(world.hosts),
        "state": "silent",
    }
    return {"id": "leaves", "label": "all leaves", "is_open": False, "switch": None, "answers": True} | about


def _leaf(world: Synthetic, query: Query) -> Json:
    name, peer = query["name"], query.get("peer")
    for each in (name, peer or name):
        if each not in world.leaves:
            raise RefusedError(404, f"no leaf is called {each}", "see `cwdp fabric`")
    rows, columns = world.nics(name), world.nics(peer) if peer else world.leaves
    cells = len(rows) * len(columns)
    codes = {metric: np.arange(cells, dtype=np.uint8) % 60 for metric in METRICS[:3]}
    scales = {
        metric: dict(zip(("lowest", "ratio", "unit"), SCALES[metric], strict=True)) for metric in METRICS[:3]
    }
    matrix = {
        "rows": rows,
        "columns": columns,
        "metrics": {each: text(codes[each]) for each in codes},
        "scales": scales,
    }
    return {
        "name": name,
        "peer": peer,
        "rails": ["nic0"],
        "nics": [{"nic": nic, "to": world.link(name, nic), "from": world.link(nic, name)} for nic in rows],
        "uplinks": [{"up": world.link(name, each), "down": world.link(each, name)} for each in world.spines],
        "downlinks": [],
        "matrix": None if "at" in query else matrix,
        "pair": {
            "src_leaf": name,
            "dst_leaf": peer,
            "owd_min_ns": 7000,
            "owd_p50_ns": 9500,
            "owd_p99_ns": 84000,
            "loss": 0.0004,
        }
        if peer
        else None,
        "findings": world.findings()[:1] if name == world.leaf(1) else [],
        "suspects": [],
        "queue_pairs": [world.qp(i) for i in range(8)],
        "queue_pair_count": 61,
    }


def _link_view(world: Synthetic, query: Query) -> Json:
    a, b = query["a"], query["b"]
    if not world.knows(a, b):
        raise RefusedError(404, f"no link {a} > {b} is known", "see `cwdp link`")
    findings = [each for each in world.findings() if each["where"] == {"page": "link", "a": a, "b": b}]
    return {
        "there": world.link(a, b),
        "back": world.link(b, a),
        "findings": findings,
        "events": world.events[-12:],
        "queue_pairs": [world.qp(i) for i in range(6)],
        "queue_pair_count": 6,
        "jobs": [world.job(0), world.job(1)],
        "is_avoided": bool(findings),
        "act": [
            *(step for each in findings for step in each["act"]),
            {"command": "cwdp fabric --links", "text": "Ends:"},
        ],
    }


def _series(world: Synthetic, query: Query) -> Json:
    now_s = time.time()
    until_s = float(query.get("until", now_s))
    since = float(query.get("since", -3600))
    since_s = now_s + since if since < 0 else since
    lasts_s = 10 if until_s - since_s <= 3600 else 60 if until_s - since_s <= 86400 else 600
    starts_s = np.arange(since_s // lasts_s * lasts_s, until_s, lasts_s)
    wave = 1 + 0.6 * np.sin(starts_s / 400) + 0.2 * np.random.default_rng(3).random(len(starts_s))
    queue = [None if i % 97 == 40 else float(value) for i, value in enumerate(wave * 40e3)]
    return {
        "from_s": starts_s.tolist(),
        "lasts_s": lasts_s,
        "queue_p50_ns": (wave * 9e3).tolist(),
        "queue_p99_ns": queue,
        "load_bps": (wave * 1.6e11).tolist(),
        "loss": [0.0] * len(starts_s),
    }


def _qp_view(world: Synthetic, query: Query) -> Json:
    i = int(query["qpn"]) - 4000
    if not query["qpn"].isdecimal() or not 0 <= i < 960 or world.qp(i)["host"] != query["host"]:
        raise RefusedError(404, "no such queue pair is known", "see `cwdp qp`")
    qp, nic = world.qp(i), f"{query['host']}/nic0"
    ways = [
        [(nic, world.leaf(1)), (world.leaf(1), spine), (spine, world.leaf(4)), (world.leaf(4), qp["peer"])]
        for spine in world.spines[1:3]
    ]
    hops = [[world.link(*each) for each in way] for way in ways]
    return {
        "queue_pair": qp,
        "job": qp["job"],
        "path": {"sport": qp["sport"], "hops": hops[0], "is_known": True},
        "backup": {"sport": 51000, "hops": hops[1]},
        "ways": 4,
        "clock_bound_ns": 260,
        "moves": [world.move(qp)],
        "events": world.events[-4:],
        "findings": world.findings()[:1],
        "back": {
            "page": "qp",
            "host": qp["host"],
            "nic": "nic0",
            "dst_addr": qp["peer_addr"],
            "qpn": qp["qpn"],
        },
        "process": None,
        "act": [{"command": "cwdp qp --owd", "text": "Its packets' delays:"}],
    }


def _job(world: Synthetic, query: Query) -> Json:
    jobs = [world.job(i) for i in range(3)]
    if "name" not in query:
        return {"jobs": jobs}
    found = [job for job in jobs if job["name"] == query["name"]]
    if not found:
        raise RefusedError(
            404, f"no job is called {query['name']}", "it may have ended; see the list of jobs"
        )
    members = [
        {"host": host, "nics": ["nic0"], "egress_bps": 7e10 - 3e9 * i, "ingress_bps": 6e10}
        for i, host in enumerate(world.hosts[:8])
    ]
    link = world.link(world.leaf(0), world.spine(2)) | {"state": "full"}
    return found[0] | {
        "members": members,
        "slowest": [world.qp(i) for i in range(10)],
        "findings": world.findings()[:1],
        "shares_with": [{"job": jobs[1]["name"], "link": link}],
    }


def _history(world: Synthetic, query: Query) -> Json:
    return {"rows": [world.move(world.qp(i)) for i in range(3)]}


def _find(world: Synthetic, query: Query) -> Json:
    wanted = query["q"].lower()
    found = [{"label": host, "kind": "host", "where": {"page": "host", "name": host}} for host in world.hosts]
    found += [
        {"label": leaf, "kind": "switch", "where": {"page": "leaf", "name": leaf}} for leaf in world.leaves
    ]
    return {"found": [each for each in found if wanted in str(each["label"]).lower()][:20]}


def _span(world: Synthetic, query: Query) -> Json:
    now_s = time.time()
    since_s = now_s - HISTORY_S
    return {
        "links": [since_s, now_s],
        "pairs": [since_s, now_s],
        "fabric_since_s": since_s,
        "events_since_s": since_s,
    }


def _clock(world: Synthetic, query: Query) -> Json:
    return {
        "allowance_ns": 0.0,
        "timeline": "16de597c5ea9",
        "hosts": [_clock_row(i, host) for i, host in enumerate(world.hosts)],
    }


def _clock_row(i: int, host: str) -> Json:
    state = {0: "set_aside", 3: "holdover"}.get(i, "synced")
    return {
        "host": host,
        "state": state,
        "offset_ns": 697580731 - 31 * i,
        "ref_local_ns": 6095034481947,
        "drift_ppb": -39.657 * i,
        "bound_ns": None if state == "set_aside" else 80.0 + i,
        "edges_used": 4,
        "edges_rejected": i % 2,
        "residual_p99_ns": 370.2,
        "age_s": 0.17,
        "discipline_source": "adjtimex",
        "discipline_ppb": -10915.651,
        "discipline_changes": i,
        "discipline_changed_s": 11.9 if i else None,
        "widened": "clock_changed" if i == 5 else None,
        "clock_changed_s": 0.7 if i == 5 else None,
        "cause": "its clock runs 40 ppm faster than it says" if state == "set_aside" else None,
    }


def _events(world: Synthetic, query: Query) -> Json:
    now_s = time.time()
    since, until = float(query.get("since", 0)), float(query.get("until", now_s))
    since_s = now_s + since if query.get("since", "").startswith("-") else since
    kinds = set(query.get("kind", "").split(",")) - {""}
    rows = [
        event
        for event in world.events
        if since_s <= event["time_s"] <= until
        and (not kinds or event["kind"] in kinds)
        and query.get("host", event["host"]) == event["host"]
    ]
    limit = int(query.get("limit", 1000))
    return {"events": rows[-limit:], "more": len(rows) > limit}


def _host(world: Synthetic, query: Query) -> Json:
    if query["name"] not in world.hosts:
        raise RefusedError(404, f"no host is called {query['name']}", "see `cwdp host`")
    nic = {
        "ifname": "nic0",
        "mac": "02:01:00:01:00:00",
        "ipv4": "10.1.0.1",
        "ipv6": None,
        "carrier": True,
        "mode": "native",
        "transport": "xdp",
        "reason": "ok",
    }
    return {
        "hosts": [
            {
                "host": query["name"],
                "state": "up",
                "clock_state": "synced",
                "version": "0.1.0",
                "dataplane_tag": "4c812b26d05d4ad9",
                "boot_id": "ac30b053",
                "restarts": 0,
                "desired_version": 4,
                "key_ids": [1],
                "last_seen_s": 0.4,
                "nics": [nic],
                "counters": {"agent.nic0.pairs_sent": 3496, "agent.nic0.pairs_skipped": 0},
            }
        ],
        "transports": {"ud": 0, "xdp": 4},
    }


def _qp(world: Synthetic, query: Query) -> Json:
    rows = [qp for qp in (world.qp(i) for i in range(960)) if qp["host"] == query.get("host", qp["host"])]
    return {"qp_count": len(rows), "unlisted": 0, "queue_pairs": rows[: int(query.get("limit", 50))]}


ANSWERS: dict[str, Callable[[Synthetic, Query], Any]] = {
    "fleet": _fleet,
    "matrix": _matrix,
    "map": _map,
    "leaf": _leaf,
    "link-view": _link_view,
    "qp-view": _qp_view,
    "series": _series,
    "job": _job,
    "iterations": iterations,
    "job-series": job_series,
    "causes": causes,
    "find": _find,
    "span": _span,
    "clock": _clock,
    "events": _events,
    "history": _history,
    "host": _host,
    "qp": _qp,
}
