"""What the HTTP API answers of queue pairs and TCP connections that are steered, whatever moves them."""

from collections.abc import Iterator

import msgspec

from cwdp.shared.bus.messages import SteerQp, nic_id
from cwdp.shared.tcp import SteerTcp
from manager.documents import merged_tcp
from manager.state import FleetState
from manager.tcp.names import name_of
from manager.tcp.steered import standing
from manager.view.json_values import Json


def steered(state: FleetState, host: str) -> Json:
    """How queue pairs and TCP connections of a host are to be steered: as operators want it, else as the planner does."""
    rows = list(_rows(state, host))
    return {
        "steered": sorted(rows, key=lambda row: (row["nic"], row["dst"], row["qpn"])),
        "connections": sorted(_connections(state, host), key=lambda row: (row["nic"], row["connection"])),
    }


def _connections(state: FleetState, host: str) -> Iterator[Json]:
    overrides = state.overrides.tcp.messages().get(host, [])
    for steer in merged_tcp(overrides, state.planner.planned_tcp.get(host, [])):
        yield _connection(state, host, steer)


def _connection(state: FleetState, host: str, steer: SteerTcp) -> Json:
    told, fields = state.planner.steered_tcp.of(name_of(host, steer)), msgspec.to_builtins(steer)
    is_done = told is not None and (told.steer.sport, told.steer.backup_sport) == (
        steer.sport,
        steer.backup_sport,
    )
    there = state.members.nics_by_address.get(steer.remote_addr, steer.remote_addr)
    return {
        "connection": f"{nic_id(host, steer.nic)}:{steer.local_port} - {there}:{steer.remote_port}",
        "host": host,
        "nic": steer.nic,
        **{name: fields[name] for name in ("local_addr", "local_port", "remote_addr", "remote_port")},
        **{name: fields[name] for name in ("sport", "backup_sport", "flow_label")},
        "set_by": "operator" if steer.override else "planner",
        "standing": standing(told) if told is not None and is_done else None,
    }


def _rows(state: FleetState, host: str) -> Iterator[Json]:
    overrides = state.steering.all(host)
    for override in overrides:
        steer = override.message()
        yield _row(state, host, steer, "operator")
    taken = {(one.nic, one.dst, one.qpn) for one in overrides}
    for steer in state.planner.planned.get(host, []):
        if (steer.nic, steer.dst_addr, steer.qpn) not in taken:
            yield _row(state, host, steer, "planner")


def _row(state: FleetState, host: str, steer: SteerQp, set_by: str) -> Json:
    verbs = state.traffic.verbs.of((host, steer.nic, steer.dst_addr, steer.qpn))
    fields = msgspec.to_builtins(steer)
    return {
        "host": host,
        "nic": steer.nic,
        "dst": steer.dst_addr,
        **{name: fields[name] for name in ("qpn", "sport", "backup_sport", "flow_label")},
        "set_by": set_by,
        "actuator": "tc" if verbs is None else verbs.actuator,
        "refused": verbs is not None and verbs.refused,
    }
