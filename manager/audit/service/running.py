"""An audit under way: who was asked, and who has told all its facts. Pure: time is an argument."""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from cwdp.shared.audit.asks import Ask
from cwdp.shared.audit.facts import HostFacts, Walk
from cwdp.shared.bus.audits import AuditOrder, AuditReport, facts_of

Heard = Literal["ok", "not_asked", "not_facts"]
HEARD: tuple[Heard, ...] = ("ok", "not_asked", "not_facts")

HOSTS_A_SECOND = 500
"""So many begin in a second, so that what they tell does not come all at once."""

LONGEST_SPREAD_S = 30.0
READING_S = 25.0
"""An agent reads for 20 s at most."""

WALKING_S = 25.0
"""And walks, and asks, for as long."""

AGAIN_S = 5.0
"""An order is repeated to who has told nothing: it may have been lost."""


class Running:
    """The hosts of one audit.

    Args:
        number: of the orders.
        hosts: who is asked.
        began_s: the manager's monotonic clock.
        walks: those that each host is to make, besides finding out what it reaches; None where they are to read facts only.
        asks: whom each host is to ask.

    Attributes:
        facts: of the hosts that have told all.
    """

    def __init__(
        self,
        number: int,
        hosts: Iterable[str],
        began_s: float,
        walks: Mapping[str, list[Walk]] | None = None,
        *,
        asks: Mapping[str, Ask] | None = None,
    ) -> None:
        self._asks = asks or {}
        self.number, self.hosts, self.began_s, self._walks = number, frozenset(hosts), began_s, walks
        self.within_s = min(len(self.hosts) / HOSTS_A_SECOND, LONGEST_SPREAD_S)
        self.facts: dict[str, HostFacts] = {}
        self._pieces: dict[str, dict[int, bytes]] = {}
        self._taken_s: dict[str, float] = {}
        self._ordered_s = -AGAIN_S

    def hear(self, report: AuditReport) -> Heard:
        """A host tells a piece of its facts."""
        if report.number != self.number or report.host not in self.hosts or report.host in self.facts:
            return "not_asked"
        if self._taken_s.get(report.host) != report.taken_s:
            self._taken_s[report.host], self._pieces[report.host] = report.taken_s, {}
        pieces = self._pieces[report.host]
        pieces[report.part] = report.facts
        if len(pieces) < report.parts:
            return "ok"
        self._pieces[report.host] = {}
        try:
            facts = facts_of([pieces[i] for i in sorted(pieces)])
        except msgspec.DecodeError:
            return "not_facts"
        if facts.host != report.host:
            return "not_facts"
        self.facts[report.host] = facts
        return "ok"

    def waits_for(self) -> list[str]:
        """The hosts that have not told all, by name."""
        return sorted(self.hosts - self.facts.keys())

    def due(self, now_s: float) -> list[AuditOrder]:
        """What hosts are to be told now."""
        if now_s - self._ordered_s < AGAIN_S:
            return []
        self._ordered_s = now_s
        return [
            AuditOrder(
                host=host,
                number=self.number,
                within_s=self.within_s,
                walks=(self._walks or {}).get(host, []),
                ask=self._asks.get(host),
                reach=self._walks is not None,
            )
            for host in self.waits_for()
        ]

    @property
    def longest_s(self) -> float:
        """For so long an answer may take."""
        return self.within_s + READING_S + (0.0 if self._walks is None else WALKING_S)

    def is_over(self, now_s: float) -> bool:
        """Whether all have told, or those that have not will tell no more."""
        return len(self.facts) == len(self.hosts) or now_s - self.began_s >= self.longest_s
