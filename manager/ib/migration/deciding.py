"""What is to become of each connection over InfiniBand: one look at all. No I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cwdp.shared.ib.subnet import SubnetKey
from manager.faults.finding import Finding
from manager.ib.migration.attempts import Why
from manager.ib.migration.connections import Connection, Connections, Key
from manager.ib.migration.room import Link, Room
from manager.ib.migration.targets import Choice, Faulty, faulty
from manager.ib.paths import Paths

STATES = (
    "backed_up",
    "not_backed_up",
    "one_end",
    "paths_differ",
    "no_orders",
    "no_other_path",
    "lids_changed",
)
"""Of connections now: with or without an alternate path that is ready; queue pairs of whose far end nobody tells; connections whose
ends say that they take different paths; whose hosts take no orders now; on a faulty path without another; of which an operator wants
LIDs that their ports have no more."""


class Wish(NamedTuple):
    """What is to be done with a connection.

    Attributes:
        to: the path that it is to go to or, for a backup, to load.
        is_loaded: whether both ends have that loaded.
        follower: the end that is to follow the other; None for both.
        links: for room, those that it leaves and takes.
    """

    key: Key
    to: int
    why: Why
    is_loaded: bool = False
    follower: int | None = None
    links: frozenset[Link] = frozenset()


class At(NamedTuple):
    """Numbers of a connection's paths.

    Attributes:
        number: of the one that it takes; None where its ends differ.
        loaded: of the one that both ends say they have loaded; None for none.
        once_loaded: of the one that was loaded last, as an agent that begins anew does not know it; to load it again disarms
            nothing.
    """

    number: int | None
    loaded: int | None
    once_loaded: int | None


class Look:
    """One look.

    Args:
        connections: all.
        paths: of each subnet.
        findings: faults of links and switches.
        room: what was moved for room.

    Attributes:
        states: of `STATES`.
    """

    def __init__(
        self,
        connections: Connections,
        paths: Mapping[SubnetKey, Paths],
        findings: Iterable[Finding],
        room: Room,
        now_s: float,
    ) -> None:
        self.states: Counter[str] = Counter(dict.fromkeys(STATES, 0) | {"one_end": connections.one_end})
        self._connections, self._paths, self._room, self._now_s = connections, paths, room, now_s
        named = list(findings)
        self._bad: dict[SubnetKey, Faulty] = {
            subnet: faulty(each.now, named) for subnet, each in paths.items()
        }
        self._choices: dict[tuple[SubnetKey, int, int], Choice] = {}

    def choice(self, key: Key) -> Choice:
        """Between the paths of a connection's ports."""
        subnet = self._connections.subnets[key]
        one, other = (end.here.row for end in self._connections.all[key].ends)
        choice = self._choices.get((subnet, one, other))
        if choice is None:
            paths = self._paths[subnet]
            both, differing = paths.both_ways(one, other), paths.between(one, other)
            count = self._connections.all[key].path_count
            choice = Choice(both[:count], differing[:count], self._bad[subnet])
            self._choices[subnet, one, other] = choice
        return choice

    def paths(self, key: Key) -> Paths:
        """Of the subnet that a connection is in."""
        return self._paths[self._connections.subnets[key]]

    def wish(self, key: Key, at: At, wanted: int | None) -> Wish | None:
        """What is to be done with a connection; None where it is well.

        Args:
            key: which.
            at: the paths that it has.
            wanted: of the path that an operator wants; None for any.
        """
        number, loaded, once_loaded = at
        if number is None:
            self.states["paths_differ"] += 1
            return self._follow(key, once_loaded)
        choice, loads = self.choice(key), self.paths(key).loads
        is_ready = loaded in choice.good
        self.states["backed_up" if is_ready else "not_backed_up"] += 1
        usable = [one for one in (loaded, once_loaded) if one in choice.good and one != number]
        other = usable[0] if usable else choice.beside(number, loads)
        if wanted is not None and wanted != number:
            return Wish(key, wanted, "operator", wanted == loaded)
        if wanted is None and choice.is_faulty(number):
            self.states["no_other_path"] += other is None
            return None if other is None else Wish(key, other, "fault", other == loaded)
        roomier = None if wanted is not None else self._roomier(key, choice)
        if roomier is not None:
            links = frozenset((self.paths(key).name, row) for row in choice.rows(number, roomier))
            return Wish(key, roomier, "room", roomier == loaded, links=links)
        return None if is_ready or other is None else Wish(key, other, "backup")

    def _follow(self, key: Key, once_loaded: int | None) -> Wish | None:
        """One end may have gone where the other has not been seen to go yet; ends that programs have put apart stay so."""
        ends = self._connections.all[key].ends
        numbers = [end.number_of(end.qp.sport) for end in ends]
        for follower, (end, to) in enumerate(zip(ends, numbers[::-1], strict=True)):
            if to is not None and to in (end.number_of(end.qp.alternate), once_loaded):
                return Wish(key, to, "follow", follower=follower)
        return None

    def _roomier(self, key: Key, choice: Choice) -> int | None:
        connection: Connection = self._connections.all[key]
        return self._room.better(key, connection, choice, self.paths(key), self._now_s)
