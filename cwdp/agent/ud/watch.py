"""Which paths of queue pairs that hardware sends have fallen silent, by pulses between UD queue pairs. No I/O.

Each path that queue pairs take is pulsed every turn, and those that they could take one turn in four. A pulse comes back by one
of several ports in turn, not by one that has just failed, so that a dead way back does not look like a dead way there. A path
is down when none of several pulses over `dead_after` is answered while a later one over another path to the same peer is:
a peer that stands still, or this process, is no dead path, and there would be nowhere to go. It is up again once all its
pulses were answered for `hold_down`. What is down stays watched until then though nothing takes it any more: queue pairs
that have died of it are connected anew.
"""

import random
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from cwdp.agent.ud.orders import UdWatched, WatchPace
from cwdp.rdma.sport import SPORT_MAX, SPORT_MIN
from cwdp.rdma.udprobe import UdPath, UdSample
from cwdp.shared.bus.messages import UdAddress

TURN_NS = 5_000_000
MOST_PER_S = 2_000
SPARE_TURNS = 4
"""Between two pulses over a path that no queue pair takes, or that is down."""

LEAST_UNANSWERED = 3
DEAD_AFTER_NS, DEAD_AFTER_TURNS = 25_000_000, 4
REPLY_PORTS = 8
GRACE_TURNS = 2
"""After so many turns without an answer a way back is not taken, while there are others."""

KEPT_NS = 600_000_000_000
"""So long a path that is down is watched after it was last to be; its peer may never come back."""

MOST_OUTSTANDING = 16

_NS_PER_S = 1_000_000_000


@dataclass
class _Silence:
    """Pulses that were not answered, since the last one that was: when each was sent."""

    sent_ns: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_OUTSTANDING))
    count: int = 0
    since_ns: int = 0

    def sent(self, now_ns: int) -> None:
        """One more was sent."""
        if not self.count:
            self.since_ns = now_ns
        self.count += 1
        self.sent_ns.append(now_ns)

    def answered(self, sent_ns: int) -> None:
        """One was answered: what was sent before it counts no more."""
        while self.sent_ns and self.sent_ns[0] <= sent_ns:
            self.sent_ns.popleft()
        self.count = len(self.sent_ns)
        self.since_ns = self.sent_ns[0] if self.sent_ns else 0


@dataclass
class _Path:
    told: UdWatched
    silence: _Silence = field(default_factory=_Silence)
    is_down: bool = False
    answered_ns: int = -1
    healthy_ns: int | None = None
    turn: int = 0
    is_kept: bool = False
    kept_since_ns: int | None = None


class PathWatch:
    """Some paths of one NIC; what is told of them again goes on from what is known.

    Args:
        rng: draws the ports of ways back.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._paths: dict[tuple[UdAddress, int], _Path] = {}
        self._ports: dict[UdAddress, list[int]] = {}
        self._ways: defaultdict[tuple[UdAddress, int], _Silence] = defaultdict(_Silence)
        self._answered_ns: defaultdict[UdAddress, int] = defaultdict(lambda: -1)
        self._open: dict[int, tuple[_Path, int, int]] = {}
        self._pace = WatchPace()
        self._due_ns = self._turns = 0

    @property
    def turn_ns(self) -> int:
        """From one turn to the next: as configured, and so long that there are not more pulses than may be."""
        pulses = sum(1.0 if path.told.in_use else 1.0 / SPARE_TURNS for path in self._paths.values())
        return max(TURN_NS, self._pace.interval_ns, round(pulses * _NS_PER_S / MOST_PER_S))

    @property
    def down(self) -> list[tuple[str, int]]:
        """The paths that are down: destination address and source port."""
        return sorted((path.told.dst_addr, path.told.sport) for path in self._paths.values() if path.is_down)

    def watch(self, paths: Sequence[UdWatched], pace: WatchPace) -> None:
        """Watch these, what is down, and no others."""
        self._pace = pace
        before, self._paths = self._paths, {}
        for told in paths:
            path = before.pop((told.peer, told.sport), None) or _Path(told, turn=len(self._paths))
            path.told, path.is_kept, path.kept_since_ns = told, False, None
            self._paths[told.peer, told.sport] = path
        self._keep(before, {told.dst_addr: told.peer for told in paths})
        peers = {peer for peer, _ in self._paths}
        self._ports = {peer: self._ports.get(peer) or self._draw(peer) for peer in peers}
        kept = set(map(id, self._paths.values()))
        self._open = {seq: one for seq, one in self._open.items() if id(one[0]) in kept}
        for key in [key for key in self._ways if key[0] not in peers]:
            del self._ways[key]

    def due_ns(self) -> int | None:
        """When the next pulses are to be sent; None where there are no paths."""
        return self._due_ns if self._paths else None

    def take(self, now_ns: int) -> list[tuple[UdWatched, UdPath]]:
        """The pulses of a turn, if it is time for one."""
        if not self._paths or now_ns < self._due_ns:
            return []
        self._due_ns = max(self._due_ns + self.turn_ns, now_ns)
        self._turns += 1
        return [
            (path.told, UdPath(path.told.peer, path.told.sport, self._way_back(path, now_ns)))
            for path in self._paths.values()
            if (path.told.in_use and not path.is_down) or (self._turns + path.turn) % SPARE_TURNS == 0
        ]

    def sent(self, pulse: UdPath, seq: int, now_ns: int) -> None:
        """A pulse has left."""
        path = self._paths.get((pulse.peer, pulse.sport))
        if path is not None:
            path.silence.sent(now_ns)
            self._ways[pulse.peer, pulse.reply_sport].sent(now_ns)
            self._open[seq] = path, pulse.reply_sport, now_ns

    def take_samples(self, samples: Iterable[UdSample]) -> None:
        """Take in what became of pulses; other probes are passed over."""
        for sample in samples:
            found = self._open.pop(sample.seq, None)
            if found is None:
                continue
            path, reply_sport, sent_ns = found
            if sample.exchange is None:
                path.healthy_ns = None
                continue
            peer = path.told.peer
            path.silence.answered(sent_ns)
            path.answered_ns = max(path.answered_ns, sent_ns)
            path.healthy_ns = sent_ns if path.healthy_ns is None else path.healthy_ns
            self._ways[peer, reply_sport].answered(sent_ns)
            self._answered_ns[peer] = max(self._answered_ns[peer], sent_ns)

    def judge(self, now_ns: int) -> bool:
        """Decide which paths are down; whether that has changed."""
        dead_after_ns = max(DEAD_AFTER_NS, self._pace.dead_after_ns, DEAD_AFTER_TURNS * self.turn_ns)
        changed = False
        for path in self._paths.values():
            was_down = path.is_down
            if path.is_down:
                path.is_down = not (self._has_healed(path) or self._is_forgotten(path, now_ns))
            else:
                spared = 1 if path.told.in_use else SPARE_TURNS
                path.is_down = self._is_silent(path, now_ns, spared * dead_after_ns)
                if path.is_down:
                    path.healthy_ns = None
            changed |= path.is_down != was_down
        return changed

    def _keep(self, before: Mapping[tuple[UdAddress, int], _Path], peers: Mapping[str, UdAddress]) -> None:
        """Go on watching what is down, unless its address has another peer by now."""
        for key, path in before.items():
            if path.is_down and peers.get(path.told.dst_addr, path.told.peer) == path.told.peer:
                path.told, path.is_kept = msgspec.structs.replace(path.told, in_use=False), True
                self._paths[key] = path

    @staticmethod
    def _is_forgotten(path: _Path, now_ns: int) -> bool:
        """Whether nobody has wanted it watched for long."""
        if path.is_kept and path.kept_since_ns is None:
            path.kept_since_ns = now_ns
        return path.kept_since_ns is not None and now_ns - path.kept_since_ns > KEPT_NS

    def _is_silent(self, path: _Path, now_ns: int, dead_after_ns: int) -> bool:
        silence = path.silence
        return (
            silence.count >= LEAST_UNANSWERED
            and now_ns - silence.since_ns >= dead_after_ns
            and self._answered_ns[path.told.peer] > silence.since_ns
        )

    def _has_healed(self, path: _Path) -> bool:
        """Whether each of its pulses was answered for long enough."""
        return path.healthy_ns is not None and path.answered_ns - path.healthy_ns >= self._pace.hold_down_ns

    def _way_back(self, path: _Path, now_ns: int) -> int:
        """The next of its ways back that has not just failed; any, where all have."""
        peer, ports = path.told.peer, self._ports[path.told.peer]
        first = (self._turns + path.turn) % len(ports)
        turns = [ports[(first + i) % len(ports)] for i in range(len(ports))]
        grace_ns = GRACE_TURNS * self.turn_ns
        for port in turns:
            silence = self._ways[peer, port]
            if not silence.count or now_ns - silence.since_ns < grace_ns:
                return port
        return turns[0]

    def _draw(self, peer: UdAddress) -> list[int]:
        """Ports of ways back from a peer, spread over those that it has."""
        ports: Collection[int] = peer.sports or range(SPORT_MIN, SPORT_MAX + 1)
        return self._rng.sample(list(ports), min(REPLY_PORTS, len(ports)))
