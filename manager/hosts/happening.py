"""What happened, for people."""

from dataclasses import dataclass

from cwdp.shared.bus.messages import PathChange


@dataclass(frozen=True, kw_only=True)
class Happening:
    """An event for people, of an agent or of the manager's own; `time_s` is the manager's wall clock."""

    time_s: float
    host: str
    kind: str
    nic: str | None
    detail: str
    path: PathChange | None = None
