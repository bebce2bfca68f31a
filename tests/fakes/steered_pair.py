"""A queue pair between two hosts of a lab that is steered over one spine, and backed up by another; both directions."""

from typing import Any

from waiting import until

from cwdp.cli.client import ManagerClient
from tools.lab import Host, Lab
from tools.lab.truth.clocks import Truth
from tools.lab.truth.spines import spines_by_port
from tools.roce.flows import Endpoint, Flow

SOURCE, TARGET = "h1", "h3"
QPN, REMOTE_QPN = 1000, 1001
PORTS = range(50_000, 50_008)


class SteeredPair:
    """The queue pair from `SOURCE` to `TARGET`.

    Args:
        lab: of two leaves and several spines.
        truth: reads the hosts' maps.

    Attributes:
        ends: the two hosts.
        ways: of each direction, its port, its backup's, and the spine of the first.
    """

    def __init__(self, lab: Lab, truth: Truth) -> None:
        self.truth = truth
        self.ends = lab.host(SOURCE), lab.host(TARGET)
        self.ways = [_way(lab, *self.ends), _way(lab, *self.ends[::-1])]

    def steer(self, client: ManagerClient, there: ManagerClient | None = None) -> None:
        """Both directions, by a manager, or by one of each end; until the source's dataplane knows."""
        both = self.ends, self.ends[::-1]
        for (here, peer), qpn, way, asked in zip(
            both, (REMOTE_QPN, QPN), self.ways, (client, there or client), strict=True
        ):
            wish = {"host": here.name, "nic": "nic0", "dst": str(peer.nics[0].ipv4), "qpn": qpn}
            asked.put("/v1/steer", wish | {"sport": way[0], "backup_sport": way[1]})
        until(self.is_steered, "the steering in the maps")

    def is_steered(self) -> bool:
        """Whether the source's dataplane watches both paths."""
        return self.truth.watched_sports(SOURCE) >= {*self.ways[0][:2]}

    def flow(self, rate_bps: int, **settings: Any) -> Flow:
        """What the queue pair sends."""
        source, target = self.ends
        return Flow(
            id=0,
            source=Endpoint(SOURCE, source.nics[0].ipv4),
            target=Endpoint(TARGET, target.nics[0].ipv4),
            qpn=QPN,
            remote_qpn=REMOTE_QPN,
            sport=60_000,
            ack_sport=60_001,
            mtu=256,
            message_bytes=4096,
            rate_bps=rate_bps,
            window=512,
            retries=1000,
            **settings,
        )


def _way(lab: Lab, source: Host, target: Host) -> tuple[int, int, str]:
    """A port, one that leads over another spine, and the first one's spine."""
    spines = spines_by_port(lab, source, target, PORTS)
    sport, spine = min(spines.items())
    return sport, min(port for port, other in spines.items() if other != spine), spine
