"""How TCP connections find their paths in an experiment, and what that takes on hosts."""

from enum import StrEnum
from pathlib import Path

from tools.lab import Lab
from tools.lab.network.netns import netns_enter
from tools.mpi.allreduce import Family

SYSCTLS = Path("/proc/sys/net")
LABELS, REHASH = "ipv6/auto_flowlabels", "core/txrehash"


class Arm(StrEnum):
    """How connections find their paths.

    ECMP: over IPv4, by their ports. REHASH: over IPv6 with flow labels, which Linux draws anew after a time-out
    (`net.core.txrehash`, Linux 5.18; on time-outs and, with PLB, on congestion it is `sk_rethink_txhash`).
    """

    ECMP = "ecmp"
    REHASH = "rehash"

    @property
    def family(self) -> Family:
        """Of the addresses of its connections."""
        return "ipv6" if self is Arm.REHASH else "ipv4"


def prepare(lab: Lab, arm: Arm) -> None:
    """Have hosts send flow labels that change after time-outs, or none."""
    wanted = str(int(arm is Arm.REHASH))
    for host in lab.hosts:
        with netns_enter(host.netns):
            for name in (LABELS, REHASH):
                path = SYSCTLS / name
                if path.exists():
                    path.write_text(wanted)
