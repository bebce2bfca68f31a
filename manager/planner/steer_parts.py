"""Puts together what hosts say is steered there, where one message does not hold it."""

from collections.abc import Collection
from dataclasses import dataclass, field

from cwdp.shared.messages import SteerReport


@dataclass
class _Begun:
    number: int
    parts: dict[int, SteerReport] = field(default_factory=dict)


class SteerParts:
    """The latest report of each host, as far as it has come."""

    def __init__(self) -> None:
        self._begun: dict[str, _Begun] = {}

    def hear(self, report: SteerReport) -> SteerReport | None:
        """The whole report, once all of it is there; parts of an earlier number are let go of."""
        if report.parts == 1:
            self._begun.pop(report.host, None)
            return report
        begun = self._begun.get(report.host)
        if begun is None or begun.number != report.number:
            begun = self._begun[report.host] = _Begun(report.number)
        begun.parts[report.part] = report
        if begun.parts.keys() != set(range(report.parts)):
            return None
        del self._begun[report.host]
        parts = [begun.parts[number] for number in range(report.parts)]
        return SteerReport(
            host=report.host,
            managed=[steer for part in parts for steer in part.managed],
            by_hand=[steer for part in parts for steer in part.by_hand],
        )

    def keep_only(self, hosts: Collection[str]) -> None:
        """Let go of what others have begun to say."""
        for host in self._begun.keys() - set(hosts):
            del self._begun[host]
