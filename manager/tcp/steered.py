"""Which TCP connections are steered on hosts, and how they are, as agents tell. No I/O."""

from collections import Counter
from collections.abc import Collection, Iterator
from ipaddress import ip_address

from cwdp.shared.bus.messages import Hello, SteerReport
from cwdp.shared.tcp import SteeredTcp, SteerTcp
from manager.placement.flows import QpName
from manager.probing.schedule import FIRST_PORT, PORT_MASK
from manager.tcp.connections import NicName
from manager.tcp.names import name_of

MOST_OF_A_HOST = 1 << 15
"""As many as the tables of eight NICs hold."""


class SteeredConnections:
    """What hosts said last.

    Attributes:
        nics: those of hosts that tell, where connections can be steered.
        moves: how often each that is steered has been seen to be given another path.
    """

    def __init__(self) -> None:
        self.nics: set[NicName] = set()
        self.moves: Counter[QpName] = Counter()
        self._nics_of: dict[str, set[NicName]] = {}
        self._of: dict[str, dict[QpName, SteeredTcp]] = {}

    def hear(self, report: SteerReport, hello: Hello) -> None:
        """A host says what is steered there; an older agent says nothing of connections."""
        host = report.host
        if report.tcp is None:
            self._forget(host)
            return
        nics = {nic.ifname for nic in hello.nics if nic.transport == "xdp"}
        self._know(host, {(host, nic) for nic in nics})
        before = self._of.get(host, {})
        now = {
            name_of(host, one.steer): one
            for one in report.tcp[:MOST_OF_A_HOST]
            if one.steer.nic in nics and _is_sane(one.steer)
        }
        for name in before.keys() - now.keys():
            self.moves.pop(name, None)
        self.moves.update(
            name
            for name, one in now.items()
            if name in before and before[name].steer.sport != one.steer.sport
        )
        self._of[host] = now

    def of(self, name: QpName) -> SteeredTcp | None:
        """One connection; None where it is not steered."""
        return self._of.get(name.host, {}).get(name)

    def managed(self, host: str) -> list[SteerTcp]:
        """What a host says the manager wanted once."""
        return [one.steer for one in self._of.get(host, {}).values() if one.managed]

    def by_hand(self, host: str) -> Iterator[QpName]:
        """What was set by hand there."""
        return (name for name, one in self._of.get(host, {}).items() if not one.managed)

    def ports(self) -> dict[QpName, int]:
        """The source port on the wire of those whose path is known."""
        return {
            name: one.used_sport or one.steer.sport
            for told in self._of.values()
            for name, one in told.items()
            if one.confirmed
        }

    def count(self) -> Counter[str]:
        """How many are steered: by their path, by their backup, or waiting for the far end's word."""
        counts = Counter(primary=0, backup=0, unconfirmed=0)
        for told in list(self._of.values()):
            counts.update(map(standing, told.values()))
        return counts

    def keep_only(self, hosts: Collection[str]) -> None:
        """Let go of what others have said."""
        for host in self._of.keys() - set(hosts):
            self._forget(host)

    def _know(self, host: str, nics: set[NicName]) -> None:
        self.nics -= self._nics_of.get(host, set())
        self.nics |= nics
        self._nics_of[host] = nics

    def _forget(self, host: str) -> None:
        self.nics -= self._nics_of.pop(host, set())
        for name in self._of.pop(host, {}):
            self.moves.pop(name, None)


def standing(one: SteeredTcp) -> str:
    """By what path a connection goes."""
    if not one.confirmed:
        return "unconfirmed"
    return "backup" if one.failed_over else "primary"


def _is_sane(one: SteerTcp) -> bool:
    """Whether a host can be told again what it says it was told once."""
    ports = [one.sport] if one.backup_sport is None else [one.sport, one.backup_sport]
    try:
        usual = all(str(ip_address(address)) == address for address in (one.local_addr, one.remote_addr))
    except ValueError:
        return False
    are_roce = all(FIRST_PORT <= port <= FIRST_PORT + PORT_MASK for port in ports)
    return usual and are_roce and len(set(ports)) == len(ports)
