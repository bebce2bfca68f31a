"""What happened, for people."""

from dataclasses import dataclass
from typing import TypedDict

from msgspec import Struct, field

from cwdp.shared.bus.messages import PathChange

MOST_LISTED = 16
"""Queue pairs that an event lists one by one; the rest are counted."""


class Move(Struct, frozen=True, kw_only=True):
    """What the planner did with a queue pair or a connection: where it went, where it goes from now on, and why.

    Attributes:
        what: `moved`, `rerouted`, `backed_up`, `released`; over InfiniBand `migrated`, or `not_migrated` to where it should go.
        sport, backup_sport: source ports from now on, None for its own or for none; over InfiniBand a LID of the far port.
        switches: that its path crosses, in order, as far as they are known and not all its paths cross them.
        before_sport, before_backup_sport, before_switches: the same as it was before.
        why: the reason, for people.
    """

    host: str
    nic: str
    dst_addr: str
    qpn: int
    what: str
    sport: int | None
    backup_sport: int | None
    switches: list[str] = field(default_factory=list)
    before_sport: int | None = None
    before_backup_sport: int | None = None
    before_switches: list[str] = field(default_factory=list)
    why: str = ""


class Moves(Struct, frozen=True, kw_only=True):
    """How many queue pairs an event is about, and the first `MOST_LISTED` of them."""

    count: int
    listed: list[Move]


class Further(TypedDict, total=False):
    """What only some events say; see `Happening`."""

    nic: str | None
    path: PathChange | None
    why: str | None
    moves: Moves | None


@dataclass(frozen=True, kw_only=True)
class Happening:
    """An event for people, of an agent or of the manager's own; `time_s` is the manager's wall clock.

    Of a change by a person, `why` is what they said it is for; of one by the planner, `moves` are the queue pairs.
    """

    time_s: float
    host: str
    kind: str
    detail: str
    nic: str | None = None
    path: PathChange | None = None
    why: str | None = None
    moves: Moves | None = None
