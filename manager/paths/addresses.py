"""Which NIC has an address: what a host says of itself counts for others only where probes prove it. No I/O.

Both ends of a probed pair initiate. A NIC has an address if its peers' probes to that address are answered, and its own
from there are too: replies to who only claims an address go to who has it. What is proven once stays so as long as
the NIC claims it, also while its link is dead, which is when its detours are needed.
"""

from collections.abc import Callable, Iterator
from functools import cache

from msgspec.structs import replace

from cwdp.shared.bus.messages import Hello, Nic, host_of, nic_id
from manager.hosts.members import Members
from manager.paths.windows import WindowStore

INHERIT_S = 10.0
"""What hosts claim that an earlier manager directed is taken for proven, where nobody contradicts, if a manager hears it
so soon after its own start: a NIC whose link is dead then could prove nothing, and hosts may be going round it."""

Answered = Callable[[str], set[str]]
"""The addresses that have answered a NIC's probes of late."""


class AddressBook:
    """The addresses of one fleet.

    Args:
        members: the hosts; what is proven is told them.
        windows: what became of their probes.

    Attributes:
        version: another one whenever other addresses are believed.
    """

    def __init__(self, members: Members, windows: WindowStore) -> None:
        self.version = 0
        self._members, self._windows = members, windows
        self._inherits_until_s: float | None = None
        self._members_version = -1
        self._claims: dict[str, list[str]] = {}
        self._proven: dict[str, str] = {}
        self._beside: dict[str, str] = {}
        self._shown: tuple[tuple[int, int], list[Hello]] = ((-1, -1), [])

    def learn(self, now_s: float) -> None:
        """See what the latest probes prove; `now_s` is the manager's monotonic clock."""
        if self._inherits_until_s is None and self._members.hosts:
            self._inherits_until_s = now_s + INHERIT_S
        before = self._proven, self._beside
        if self._members_version != self._members.version:
            self._members_version = self._members.version
            self._claims = _claims(self._members)
            self._proven = {
                address: nic for address, nic in self._proven.items() if nic in self._claims.get(address, ())
            }
        answered = cache(self._windows.answered)
        found = {
            address: nic
            for address in self._claims.keys() - self._proven.keys()
            if (nic := self._has(address, answered, now_s)) is not None
        }
        if found:
            self._proven = self._proven | found
        self._beside = dict(self._not_probed())
        if before != (self._proven, self._beside):
            self.version += 1
            self._members.prove(self._proven)

    def proven_hellos(self) -> list[Hello]:
        """What hosts say of themselves, without the addresses that are not proven."""
        now = self._members.version, self.version
        if self._shown[0] != now:
            hosts = self._members.hosts.items()
            hellos = [
                replace(host.hello, nics=[self._shown_nic(name, nic) for nic in host.hello.nics])
                for name, host in hosts
            ]
            self._shown = now, hellos
        return self._shown[1]

    def _shown_nic(self, host: str, nic: Nic) -> Nic:
        name = nic_id(host, nic.ifname)
        ipv4, ipv6 = (
            address if address and name in (self._proven.get(address), self._beside.get(address)) else None
            for address in (nic.ipv4, nic.ipv6)
        )
        return nic if (ipv4, ipv6) == (nic.ipv4, nic.ipv6) else replace(nic, ipv4=ipv4, ipv6=ipv6)

    def _has(self, address: str, answered: Answered, now_s: float) -> str | None:
        """The one NIC of which it is proven that it has an address."""
        nics = self._claims[address]
        proven = [nic for nic in nics if self._is_proven(nic, address, answered)]
        if not proven and len(nics) == 1 and self._may_inherit(nics[0], now_s):
            proven = nics
        return proven[0] if len(proven) == 1 else None

    def _not_probed(self) -> Iterator[tuple[str, str]]:
        """Addresses that nobody probes, of NICs whose other address is proven: they count where nobody else claims them."""
        nics = set(self._proven.values())
        for address in self._claims.keys() - self._proven.keys():
            (nic, *others) = self._claims[address]
            if not others and nic in nics and not self._windows.probes_from(nic, v6=_is_v6(address)):
                yield address, nic

    def _may_inherit(self, nic: str, now_s: float) -> bool:
        in_time = self._inherits_until_s is not None and now_s <= self._inherits_until_s
        return in_time and self._members.hosts[host_of(nic)].hello.desired_version > 0

    def _is_proven(self, nic: str, address: str, answered: Answered) -> bool:
        """Whether a peer's probes to an address were answered of late, and the NIC's own from there to that peer."""
        owners = self._members.nics_by_address
        for there in answered(nic):
            peer = owners.get(there)
            if _is_v6(there) != _is_v6(address) or peer is None or host_of(peer) == host_of(nic):
                continue
            if address in answered(peer):
                return True
        return False


def _claims(members: Members) -> dict[str, list[str]]:
    """Which NICs are said to have each address."""
    claims: dict[str, list[str]] = {}
    for name, host in members.hosts.items():
        for nic in host.hello.nics:
            for address in (nic.ipv4, nic.ipv6):
                if address is not None:
                    claims.setdefault(address, []).append(nic_id(name, nic.ifname))
    return claims


def _is_v6(address: str) -> bool:
    return ":" in address
