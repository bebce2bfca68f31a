"""When queue pairs towards a destination were held back, for how long and how hard: two events for each such episode."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cwdp.shared.rates import format_rate

QUIET_NS = 2_000_000_000
"""Held back again within this is the same episode."""

LASTING_NS = 200_000_000
"""What is over sooner is a burst, not worth an event."""

MOST_OPEN = 256


@dataclass(frozen=True)
class Held:
    """A queue pair that is held back now: where to, how fast it may send, and what waits on its way."""

    dst: str
    qpn: int
    rate_bps: float
    queue_ns: float


@dataclass(frozen=True)
class Told:
    """An event: what happened, in words."""

    kind: Literal["incast_started", "incast_ended"]
    detail: str


@dataclass
class _Episode:
    since_ns: int
    until_ns: int
    told: bool
    queue_pairs: set[int]
    least_bps: float
    most_ns: float


class Episodes:
    """The episodes of one interface, by destination.

    Attributes:
        count: of those told of so far.
    """

    def __init__(self, threshold_ns: float) -> None:
        self._threshold_ns = threshold_ns
        self._open: dict[str, _Episode] = {}
        self.count = 0

    def follow(self, held: Iterable[Held], now_ns: int) -> list[Told]:
        """Take in what is held back now; what is to be told of it.

        Args:
            held: every queue pair that is held back.
            now_ns: CLOCK_MONOTONIC.
        """
        for one in held:
            self._add(one, now_ns)
        told = [self._start(dst, episode) for dst, episode in self._open.items() if self._is_new(episode)]
        over = [dst for dst, episode in self._open.items() if now_ns - episode.until_ns > QUIET_NS]
        ended = [(dst, self._open.pop(dst)) for dst in over]
        return told + [_end(dst, episode) for dst, episode in ended if episode.told]

    def _add(self, one: Held, now_ns: int) -> None:
        episode = self._open.get(one.dst)
        if episode is None:
            if len(self._open) >= MOST_OPEN:
                return
            episode = self._open[one.dst] = _Episode(now_ns, now_ns, False, set(), one.rate_bps, one.queue_ns)
        episode.until_ns = now_ns
        episode.queue_pairs.add(one.qpn)
        episode.least_bps = min(episode.least_bps, one.rate_bps)
        episode.most_ns = max(episode.most_ns, one.queue_ns)

    def _is_new(self, episode: _Episode) -> bool:
        return not episode.told and episode.until_ns - episode.since_ns >= LASTING_NS

    def _start(self, dst: str, episode: _Episode) -> Told:
        episode.told = True
        self.count += 1
        detail = (
            f"packets to {dst} wait {episode.most_ns / 1e6:.1f} ms in the fabric, more than "
            f"{self._threshold_ns / 1e6:g} ms: pacing {_counted(episode)}"
        )
        return Told("incast_started", detail)


def _end(dst: str, episode: _Episode) -> Told:
    lasted_s = (episode.until_ns - episode.since_ns) / 1e9
    detail = (
        f"to {dst}: paced {_counted(episode)} for {lasted_s:.1f} s, down to {format_rate(episode.least_bps)}; "
        f"at most {episode.most_ns / 1e6:.1f} ms waited in the fabric"
    )
    return Told("incast_ended", detail)


def _counted(episode: _Episode) -> str:
    count = len(episode.queue_pairs)
    return "1 queue pair" if count == 1 else f"{count} queue pairs"
