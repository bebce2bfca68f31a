"""What the HTTP API answers of queue pairs that are steered, whatever moves them."""

from collections.abc import Iterator

import msgspec

from cwdp.shared.bus.messages import SteerQp
from manager.state import FleetState
from manager.view.json_values import Json


def steered(state: FleetState, host: str) -> Json:
    """How the queue pairs of a host are to be steered: as operators want it, else as the planner does."""
    rows = list(_rows(state, host))
    return {"steered": sorted(rows, key=lambda row: (row["nic"], row["dst"], row["qpn"]))}


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
