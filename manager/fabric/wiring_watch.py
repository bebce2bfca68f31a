"""When something begins to be plugged in wrongly, and when that ends. No I/O.

What is suspected for a moment only is told to nobody: while paths become known or change, NICs may seem to be elsewhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from manager.fabric.wiring import Miswired

HOLDS_S = 5.0
"""A suspicion is told once it has held for so long, and its end once it has not for as long."""

FABRIC = "fabric"


@dataclass(frozen=True)
class WiringChange:
    """Something that is plugged in wrongly, or is no more; `host` and `nic` are where, `reason` is for people."""

    host: str
    nic: str | None
    kind: str
    reason: str


_Name = tuple[str, str | None, str | None]
"""What, where it is and where it belongs."""


@dataclass
class _Told:
    """What was told of, since when it held, and when it last did."""

    suspect: Miswired
    since_s: float
    last_s: float


class WiringWatch:
    """All that is suspected. Times are seconds of the manager's monotonic clock."""

    def __init__(self) -> None:
        self._since_s: dict[_Name, float] = {}
        self._told: dict[_Name, _Told] = {}

    def step(self, found: Iterable[Miswired], now_s: float) -> list[WiringChange]:
        """What is to be told now.

        Args:
            found: what is suspected; links that are missing are left out: findings tell which links are dead.
            now_s: the time.
        """
        suspects: dict[_Name, Miswired] = {
            (each.what, each.at, each.expected): each for each in found if each.at is not None
        }
        self._since_s = {name: self._since_s.get(name, now_s) for name in suspects}
        changes = []
        for name, suspect in suspects.items():
            if name in self._told:
                self._told[name].last_s = now_s
            elif now_s - self._since_s[name] >= HOLDS_S:
                self._told[name] = _Told(suspect, self._since_s[name], now_s)
                changes.append(_change(suspect, "miswired", _described(suspect)))
        for name, told in list(self._told.items()):
            if now_s - told.last_s >= HOLDS_S:
                del self._told[name]
                lasted = f"{told.suspect.what}: after {told.last_s - told.since_s:.1f} s"
                changes.append(_change(told.suspect, "miswired_over", lasted))
        return changes


def _described(suspect: Miswired) -> str:
    belongs = f" and belongs at {suspect.expected}" if suspect.expected is not None else ""
    return f"{suspect.what} is at {suspect.at}{belongs}: {suspect.reason}"


def _change(suspect: Miswired, kind: str, reason: str) -> WiringChange:
    host, _, nic = suspect.what.rpartition("/")
    return WiringChange(host or FABRIC, nic if host else None, kind, reason)
