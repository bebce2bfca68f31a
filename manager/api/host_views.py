"""What the HTTP API answers: plain data with stable keys and the unit in each key."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from cwdp.shared.messages import Transport
from manager.paths.owd import DELAYS, WINDOW_S, Paths
from manager.state import FleetState, Happening

Json = dict[str, Any]
Sort = Literal["worst", "name"]


def clock(state: FleetState, now_s: float) -> Json:
    """Every host's clock; hosts that have not been measured yet are unsynced."""
    service = state.clock
    measured = {view.host: asdict(view) for view in service.view(now_s)}
    rows = [measured.get(name) or _unmeasured(name) for name in sorted(state.members.hosts)]
    allowance_ns = service.allowance_ns
    hosts = [
        row | state.clock_events.view(row["host"], row["state"], row["bound_ns"], allowance_ns, now_s)
        for row in rows
    ]
    return {"timeline": service.timeline, "allowance_ns": round(allowance_ns, 1), "hosts": hosts}


def owd(paths: Paths, *, src: str = "", dst: str = "", sort: Sort = "worst", limit: int = 0) -> Json:
    """Every path's delays over the window.

    Args:
        paths: All paths.
        src: Only paths from this host or NIC; all where empty.
        dst: Only paths to it.
        sort: `worst` puts the largest p99 of either way first.
        limit: At most so many; 0 for all.
    """
    chosen = [i for i, key in enumerate(paths.keys) if _is_at(key[0], src) and _is_at(key[1], dst)]
    chosen.sort(key=_worst_first(paths) if sort == "worst" else lambda i: paths.keys[i])
    shown = chosen[:limit] if limit > 0 else chosen
    return {
        "window_s": WINDOW_S,
        "path_count": len(chosen),
        "paths": [_path(paths, i) for i in shown],
    }


def hosts(state: FleetState, now_s: float, *, name: str = "") -> Json:
    """Every host, or one with all its counters."""
    names = [host for host in sorted(state.members.hosts) if name in ("", host)]
    nics = [nic.transport for host in state.members.hosts.values() for nic in host.hello.nics]
    return {
        "hosts": [_host(state, host, now_s, with_counters=bool(name)) for host in names],
        "transports": {transport: nics.count(transport) for transport in get_args(Transport)},
    }


def events(state: FleetState, *, host: str = "", since_s: float = 0.0) -> Json:
    """What happened, oldest first.

    Args:
        state: What the manager knows.
        host: Only of this host; of all where empty.
        since_s: Only from this moment of the manager's wall clock on.
    """
    chosen = (event for event in state.events if host in ("", event.host) and event.time_s >= since_s)
    return {"events": [_event(event) for event in chosen]}


def _event(event: Happening) -> Json:
    return asdict(event) | {"path": None if event.path is None else msgspec.structs.asdict(event.path)}


def _unmeasured(host: str) -> Json:
    return {
        "host": host,
        "state": "unsynced",
        "ref_local_ns": None,
        "offset_ns": None,
        "drift_ppb": None,
        "bound_ns": None,
        "edges_used": 0,
        "edges_rejected": 0,
        "residual_p99_ns": None,
        "age_s": None,
    }


def _is_at(nic: str, wanted: str) -> bool:
    return wanted in ("", nic, nic.rpartition("/")[0])


def _worst_first(paths: Paths) -> Callable[[int], tuple[float, tuple[str, str, int, int]]]:
    worst = np.fmax(paths.delays["fwd_p99_ns"], paths.delays["rev_p99_ns"])
    worst = np.where(np.isnan(worst), -np.inf, worst)
    return lambda i: (-float(worst[i]), paths.keys[i])


def _path(paths: Paths, i: int) -> Json:
    src, dst, sport, reply_sport = paths.keys[i]
    sent, lost, queued = int(paths.sent[i]), int(paths.lost[i]), int(paths.queued[i])
    return {
        "src": src,
        "dst": dst,
        "sport": sport,
        "reply_sport": reply_sport,
        "sent": sent,
        "lost": lost,
        "loss": round(lost / sent, 6) if sent else None,
        "queued_share": min(1.0, round(2 * queued / (sent - lost), 6)) if sent > lost else None,
        **{name: _whole(paths.delays[name][i]) for name in DELAYS},
        "bound_ns": _whole(paths.bound_ns[i]),
        "age_s": round(float(paths.age_s[i]), 3),
    }


def _host(state: FleetState, name: str, now_s: float, *, with_counters: bool) -> Json:
    host = state.members.hosts[name]
    hello = host.hello
    clock_state = state.clock.state_of(name)
    view: Json = {
        "host": name,
        "state": host.state,
        "clock_state": clock_state,
        "version": hello.version,
        "dataplane_tag": hello.dataplane_tag,
        "boot_id": hello.boot_id,
        "restarts": host.restarts,
        "desired_version": hello.desired_version,
        "key_ids": hello.key_ids,
        "last_seen_s": round(now_s - host.last_seen_s, 3),
        "nics": [
            {
                "ifname": nic.ifname,
                "mac": nic.mac,
                "ipv4": nic.ipv4,
                "ipv6": nic.ipv6,
                "carrier": nic.carrier,
                "mode": nic.mode,
                "transport": nic.transport,
                "reason": state.members.reason(host, nic, now_s),
            }
            for nic in hello.nics
        ],
    }
    if with_counters:
        view["counters"] = dict(sorted(state.counters.of(name).items()))
    return view


def _whole(value: float) -> int | None:
    return round(float(value)) if math.isfinite(value) else None
