"""What the HTTP API answers of the manager, of hosts, and of the delays between them.

All views are plain data with stable keys, and the unit in each key.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import get_args

import msgspec
import numpy as np

from cwdp.shared.bus.edges import DELAYS
from cwdp.shared.bus.messages import Transport
from manager.bus.lease import Leadership
from manager.history.queries import Wanted
from manager.hosts.happening import Happening
from manager.paths.owd import WINDOW_S, Paths
from manager.pods.pods import PodReport, Pods
from manager.state import FleetState
from manager.view.json_values import Json, is_at, rounded

OWD_SORTS = ("worst", "name")


def manager(state: FleetState, lease: Leadership, pods: Pods | None) -> Json:
    """This manager's part in who leads, and the planner's latest step."""
    planner, standing = state.planner, state.planner.standing
    up = sum(host.state == "up" for host in state.members.hosts.values())
    return {
        "name": lease.claim.name,
        "leads": state.leads,
        "leader": None if lease.holder is None else lease.holder.name,
        "epoch": lease.epoch if state.leads else None,
        "hosts_up": up,
        "root": pods and pods.root,
        "pods": [] if pods is None else [_pod(report) for report in pods.all()],
        "planner": {
            "enabled": planner.settings.enabled,
            "queue_pairs": standing.flows,
            "steered": standing.steered,
            "backed_up": standing.backed_up,
            "fullest_link_share": round(standing.fullest, 3),
            "dead_links": [f"{a} > {b}" for a, b in standing.dead],
            "totals": dict(planner.counters),
        },
    }


def _pod(report: PodReport) -> Json:
    return {"pod": report.pod, "leader": report.manager, "hosts_up": report.hosts_up}


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


def owd(paths: Paths, *, src: str = "", dst: str = "", sort: str = "worst", limit: int = 0) -> Json:
    """Every path's delays over the window.

    Args:
        paths: All paths.
        src: Only paths from this host or NIC; all where empty.
        dst: Only paths to it.
        sort: One of `OWD_SORTS`; `worst` puts the largest p99 of either way first.
        limit: At most so many; 0 for all.
    """
    chosen = [
        i
        for i, (start, end, _, _) in enumerate(paths.keys)
        if (not src or is_at(start, src)) and (not dst or is_at(end, dst))
    ]
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


def events(state: FleetState, wanted: Wanted) -> Json:
    """What happened as far as it is in memory, oldest first, and that there may be more."""
    chosen = [
        event
        for event in state.events
        if wanted.host in ("", event.host)
        and wanted.since_s <= event.time_s <= wanted.until_s
        and (not wanted.kinds or event.kind in wanted.kinds)
    ]
    return {"events": [_event(event) for event in chosen[-wanted.limit :]], "more": True}


def _event(event: Happening) -> Json:
    said = {"path": event.path, "moves": event.moves}
    return asdict(event) | {key: msgspec.to_builtins(value) for key, value in said.items()}


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
        **{name: rounded(paths.delays[name][i]) for name in DELAYS},
        "bound_ns": rounded(paths.bound_ns[i]),
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
