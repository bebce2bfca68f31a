"""Which source ports packets of each pair have, host by host: what is as it was is not gathered anew. No I/O."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from cwdp.shared.bus.messages import ProbeEdge, host_of, nic_id
from manager.fabric.routes import Pair
from manager.overrides.steering import SteerOverride

Ports = Mapping[int, None]

_NO_PORTS: Mapping[Pair, Ports] = {}


@dataclass(frozen=True)
class HostUse:
    """What a host says and is told of the ports that it uses: that which nothing is gathered anew for while it is the same.

    Attributes:
        probed: what it probes; equal lists are the same one.
        overrides: what operators want of its queue pairs.
        flows: destinations and source ports of each of its NICs' queue pairs and TCP connections, 0 for one that is not known;
            equal ones are the same one.
    """

    probed: Sequence[ProbeEdge]
    overrides: tuple[SteerOverride, ...]
    flows: tuple[tuple[tuple[Pair, int], ...], ...]

    def same_as(self, other: "HostUse") -> bool:
        """Whether nothing is different."""
        return (
            self.probed is other.probed
            and len(self.flows) == len(other.flows)
            and all(mine is its for mine, its in zip(self.flows, other.flows, strict=True))
            and self.overrides == other.overrides
        )


@dataclass(frozen=True)
class Gathered:
    """What comes of it.

    Attributes:
        use: of which.
        in_use: the ports of each pair, probed pairs first, then those steered, then those with traffic.
        wanted: the same with those that would be probed where nothing spoke for others.
        enough: of pairs between which nothing but probes goes, how many different paths these need.
        far: those of them that lead to hosts of other pods.
        replies: pairs that replies to its probes go between.
    """

    use: HostUse
    in_use: Mapping[Pair, Ports]
    wanted: Mapping[Pair, Ports]
    enough: Mapping[Pair, int]
    far: frozenset[Pair]
    replies: frozenset[Pair]


class UsedPorts:
    """The ports of all hosts.

    Attributes:
        in_use, enough, far: see `Gathered`, of all hosts. A pair's ports are the same object while they are equal.
        wanted: see `Gathered`, by host; a host's is the same object while nothing of it is different.
    """

    def __init__(self) -> None:
        self.in_use: dict[Pair, Ports] = {}
        self.wanted: dict[str, Mapping[Pair, Ports]] = {}
        self.enough: dict[Pair, int] = {}
        self.far: set[Pair] = set()
        self._ours: Collection[str] | None = None
        self._hosts: dict[str, Gathered] = {}
        self._owners: Mapping[str, str] = {}

    def gather(
        self,
        uses: Mapping[str, HostUse],
        owners: Mapping[str, str],
        usual: Callable[[Pair], Sequence[int]],
        anew: Collection[str] = (),
        ours: Collection[str] | None = None,
    ) -> bool:
        """Take in what hosts use now; whether anything is different.

        Args:
            uses: by host.
            owners: the NIC at each address; pairs that lead to nobody or to where they come from are left out.
            usual: ports to be probed where nothing speaks for others.
            anew: hosts of which `usual` may say something else than before.
            ours: the hosts of this pod; None where there are no others.
        """
        before = {host: each for host, each in self._hosts.items() if host not in anew}
        if owners is not self._owners or ours != self._ours:
            before = {}
        self._owners, self._ours = owners, ours
        hosts = {}
        for host, use in uses.items():
            known = before.get(host)
            is_same = known is not None and use.same_as(known.use)
            hosts[host] = known if known is not None and is_same else self._of_host(host, use, usual)
        known_before = self._hosts
        if hosts.keys() == known_before.keys() and all(hosts[host] is known_before[host] for host in hosts):
            return False
        self._hosts = hosts
        self.in_use, self.enough, self.far = {}, {}, set()
        self.wanted = {host: each.wanted for host, each in hosts.items()}
        for each in hosts.values():
            self.in_use.update(each.in_use)
            self.enough.update(each.enough)
            self.far |= each.far
        return True

    def replies(self) -> set[Pair]:
        """Pairs that replies to probes go between."""
        return set().union(*(each.replies for each in self._hosts.values()))

    def _of_host(self, host: str, use: HostUse, usual: Callable[[Pair], Sequence[int]]) -> Gathered:
        ports: dict[Pair, dict[int, None]] = {}
        for edge in use.probed:
            ports.setdefault((edge.src, edge.dst_addr), {}).update(dict.fromkeys(edge.sports))
        others = set()
        for override in use.overrides:
            pair = nic_id(override.host, override.nic), override.dst
            others.add(pair)
            mine = (port for port in (override.sport, override.backup_sport) if port)
            ports.setdefault(pair, {}).update(dict.fromkeys(mine))
        for found in use.flows:
            for pair, port in found:
                others.add(pair)
                of_pair = ports.setdefault(pair, {})
                if port:
                    of_pair[port] = None
        owner, wanted = self._owners.get, self.wanted.get(host, _NO_PORTS)
        in_use = {pair: mine for pair, mine in ports.items() if owner(pair[1]) not in (None, pair[0])}
        enough = {
            pair: len(edge.sports) for edge in use.probed if (pair := (edge.src, edge.dst_addr)) not in others
        }
        return Gathered(
            use,
            {pair: _kept(self.in_use.get(pair), mine) for pair, mine in in_use.items()},
            {
                pair: _kept(wanted.get(pair), dict.fromkeys((*mine, *usual(pair))))
                for pair, mine in in_use.items()
            },
            enough,
            frozenset(pair for pair in enough if self._is_far(pair)),
            frozenset((edge.dst, edge.src_addr) for edge in use.probed),
        )

    def _is_far(self, pair: Pair) -> bool:
        """Whether a pair leads to a host of another pod."""
        nic = self._owners.get(pair[1])
        return self._ours is not None and nic is not None and host_of(nic) not in self._ours


def _kept(before: Ports | None, now: Ports) -> Ports:
    """The same object where they are equal, in the same order."""
    return before if before is not None and list(before) == list(now) else now
