"""How cwdp itself stands: who is there, whether clocks agree, whether somebody leads, and what whoever looks must know. No I/O."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from manager.moment.moment import Moment
from manager.overview.fleet import Notice, Standing
from manager.state import FleetState


@dataclass(frozen=True, kw_only=True)
class Service:
    """What the manager's own parts say.

    Attributes:
        name: this manager's.
        leader: who leads; None where nobody is known to.
        bus_connected: whether the bus is there.
        keeps_history: whether history is kept at all.
        history_stopped: whether it cannot be written.
    """

    name: str
    leader: str | None
    bus_connected: bool
    keeps_history: bool
    history_stopped: bool


def of_now(state: FleetState, service: Service, now_s: float) -> Standing:
    """How the fleet stands."""
    hosts = state.members.hosts
    states = Counter(host.state for host in hosts.values())
    reasons = Counter(
        state.members.reason(host, nic, now_s) for host in hosts.values() for nic in host.hello.nics
    )
    clocks: Counter[str] = Counter(state.clock.state_of(name) for name in hosts)
    return {
        "cluster": service.name,
        "hosts": {"up": states["up"], "lost": states["lost"]},
        "nics": {
            "probed": reasons["ok"],
            "not_probed": reasons.total() - reasons["ok"],
            "known": reasons.total(),
        },
        "clocks": {name: clocks[name] for name in ("synced", "holdover", "unsynced", "set_aside")},
        "notices": list(_notices(state, service, clocks)),
    }


def of_then(moment: Moment, name: str) -> Standing:
    """How it stood, as far as history tells."""
    nics = {"probed": None, "not_probed": None, "known": len(moment.parts.seats)}
    return {"cluster": name, "hosts": None, "nics": nics, "clocks": None, "notices": []}


def _notices(state: FleetState, service: Service, clocks: Counter[str]) -> Iterator[Notice]:
    yield from _of_the_manager(state, service)
    hosts = state.members.hosts
    if not hosts:
        yield Notice(
            state="no_agents",
            severity="unknown",
            text="No agent has been heard yet: start cwdp-agent on the hosts, with the address of this bus.",
        )
        return
    if clocks["set_aside"]:
        yield Notice(
            state="clocks_disagree",
            severity="warning",
            text=f"{clocks['set_aside']} of {len(hosts)} hosts' clocks disagree with their peers and are set aside.",
        )
    if clocks["unsynced"]:
        yield Notice(
            state="clocks_unsynced",
            severity="unknown" if clocks["unsynced"] == len(hosts) else "info",
            text=f"{clocks['unsynced']} of {len(hosts)} hosts' clocks are not synced yet: one-way delays of their paths are unknown.",
        )
    hardware = sum(nic.transport == "ud" for host in hosts.values() for nic in host.hello.nics)
    if hardware:
        yield Notice(
            state="hardware_roce",
            severity="info",
            text=f"{hardware} NICs do RoCE in hardware: their paths are probed, their queue pairs are not seen.",
        )


def _of_the_manager(state: FleetState, service: Service) -> Iterator[Notice]:
    if not service.bus_connected:
        yield Notice(
            state="bus_away", severity="critical", text="The bus does not answer: nothing new is heard."
        )
    if service.leader is None:
        yield Notice(
            state="no_leader",
            severity="warning",
            text="No manager leads: hosts go on as they were told last.",
        )
    elif not state.leads:
        yield Notice(
            state="standby",
            severity="info",
            text=f"This manager stands by; {service.leader} leads.",
        )
    if not state.planner.settings.enabled:
        yield Notice(
            state="planner_off", severity="info", text="The planner is off: no queue pair is moved by itself."
        )
    if not service.keeps_history:
        yield Notice(state="no_history", severity="info", text="No history is kept here.")
    elif service.history_stopped:
        yield Notice(
            state="history_stopped",
            severity="warning",
            text="History cannot be written: see the manager's log. All else goes on.",
        )
