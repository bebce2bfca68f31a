"""What the HTTP API answers about the manager itself: who leads, and what the planner does."""

from typing import Any

from manager.bus.lease import Lease
from manager.state import FleetState


def manager(state: FleetState, lease: Lease) -> dict[str, Any]:
    """This manager's part in who leads, and the planner's latest step."""
    planner, standing = state.planner, state.planner.standing
    up = sum(host.state == "up" for host in state.members.hosts.values())
    return {
        "name": lease.claim.name,
        "leads": state.leads,
        "leader": None if lease.holder is None else lease.holder.name,
        "epoch": lease.epoch if state.leads else None,
        "hosts_up": up,
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
