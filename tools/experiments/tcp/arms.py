"""How TCP connections find their paths in an experiment, and what that takes on hosts."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from tools.experiments.fleets import PulseSettings, running_fleet
from tools.lab import Lab
from tools.lab.fleet.processes import Fleet
from tools.lab.network.netns import netns_enter
from tools.mpi.allreduce import Family

SYSCTLS = Path("/proc/sys/net")
LABELS, REHASH = "ipv6/auto_flowlabels", "core/txrehash"


class Arm(StrEnum):
    """How connections find their paths.

    ECMP: over IPv4, by their ports. REHASH: over IPv6 with flow labels, which Linux draws anew after a time-out
    (`net.core.txrehash`, Linux 5.18; on time-outs and, with PLB, on congestion it is `sk_rethink_txhash`).
    CWDP: over IPv4, with a fleet whose planner steers those of the experiment's ports.
    """

    ECMP = "ecmp"
    REHASH = "rehash"
    CWDP = "cwdp"

    @property
    def family(self) -> Family:
        """Of the addresses of its connections."""
        return "ipv6" if self is Arm.REHASH else "ipv4"


@contextmanager
def prepared(
    lab: Lab,
    arm: Arm,
    ports: tuple[int, int],
    pulses: PulseSettings,
    hold_down_max_ms: float | None = None,
) -> Iterator[Fleet | None]:
    """A lab whose connections find their paths so; with the fleet that steers them, where there is one.

    Args:
        lab: a lab that is up.
        arm: how they find them.
        ports: the first and the last of those that the experiment's connections have at one end.
        pulses: how the fleet watches paths.
        hold_down_max_ms: the longest that the fleet leaves a path alone that relapses.

    Raises:
        LabError: the fleet did not start.
    """
    _set_labels(lab, arm)
    if arm is not Arm.CWDP:
        yield None
        return
    named = ["{}-{}".format(*ports)]
    with running_fleet(
        lab, planner=True, pulses=pulses, hold_down_max_ms=hold_down_max_ms, tcp_ports=named
    ) as fleet:
        yield fleet


def _set_labels(lab: Lab, arm: Arm) -> None:
    """Have hosts send flow labels that change after time-outs, or none."""
    wanted = str(int(arm is Arm.REHASH))
    for host in lab.hosts:
        with netns_enter(host.netns):
            for name in (LABELS, REHASH):
                path = SYSCTLS / name
                if path.exists():
                    path.write_text(wanted)
