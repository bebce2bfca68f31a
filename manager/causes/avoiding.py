"""Links that lose packets of jobs though probes pass: for a while the planner sends nothing over them. Pure: time is an argument.

Once nothing goes over a link nothing of it is lost, so it is used again after a while, and avoided for longer with each relapse.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from manager.fabric.routes import DirectedLink

AVOIDED_S, AVOIDED_MOST_S = 60.0, 3_600.0
FORGET_S = 7_200.0


@dataclass
class _Avoided:
    since_s: float
    lasts_s: float


class LinksToAvoid:
    """Those of one fleet."""

    def __init__(self) -> None:
        self._links: dict[DirectedLink, _Avoided] = {}

    def see(self, links: Iterable[DirectedLink], now_s: float) -> None:
        """A cause names these now."""
        for link in links:
            known = self._links.get(link)
            if known is None:
                self._links[link] = _Avoided(now_s, AVOIDED_S)
            elif now_s >= known.since_s + known.lasts_s:
                self._links[link] = _Avoided(now_s, min(2 * known.lasts_s, AVOIDED_MOST_S))

    def now(self, now_s: float) -> set[DirectedLink]:
        """Those that are avoided."""
        over = [
            link for link, known in self._links.items() if now_s >= known.since_s + known.lasts_s + FORGET_S
        ]
        for link in over:
            del self._links[link]
        return {link for link, known in self._links.items() if now_s < known.since_s + known.lasts_s}
