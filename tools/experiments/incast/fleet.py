"""A fleet for an incast: few probes and pulses, no planner, with congestion control or without it."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import LabError
from manager.config import PlannerSettings, ProbeSettings
from tools.experiments.incast.model import congestion, pulse_interval_ms
from tools.lab import Lab
from tools.lab.fleet.processes import Fleet
from tools.lab.fleet.session import wait_for_lock
from tools.lab.network import netns
from tools.lab.truth.clocks import Truth
from tools.waiting import wait_for

PROBES = ProbeSettings(pairs_per_s=100.0)
"""Few, as pulses: every packet of theirs is missing from what a slow link carries of the incast."""

CONTROLLED_TIMEOUT_S = 60.0
POLL_S = 0.2


@contextmanager
def incast_fleet(lab: Lab, senders: int, hosts: Collection[str], *, controlled: bool) -> Iterator[Fleet]:
    """A fleet whose clocks agree.

    Args:
        lab: a lab that is up.
        senders: how many send to one.
        hosts: all that send.
        controlled: have each of them control congestion, and wait until it does.

    Raises:
        LabError: it did not come up.
    """
    rate_bps = lab.spec.rate_bps
    with (
        Fleet(
            lab,
            PROBES,
            pulse_interval_ms=pulse_interval_ms(senders, rate_bps),
            planner=PlannerSettings(enabled=False),
            congestion=congestion(rate_bps) if controlled else None,
        ) as fleet,
        Truth(lab) as truth,
    ):
        wait_for_lock(fleet, truth)
        if controlled:
            _wait_for_control(fleet, hosts)
        yield fleet


def _wait_for_control(fleet: Fleet, hosts: Collection[str]) -> None:
    are_controlled = fleet.checked(lambda: all(_is_controlled(fleet.lab, name) for name in hosts))
    if not wait_for(are_controlled, CONTROLLED_TIMEOUT_S, poll_s=POLL_S):
        raise LabError(
            "waited for the agents to control congestion", f"read the logs: {fleet.lab.run_dir}/*.log"
        )


def _is_controlled(lab: Lab, host: str) -> bool:
    nic = lab.host(host).nics[0].name
    with netns.netns_enter(lab.netns(host)):
        where = tree.here(nic)
    with Maps(where) as maps:
        return bool(maps.slice_table["enforcer"][0])
