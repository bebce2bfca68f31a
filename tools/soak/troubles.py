"""What may go wrong in a soak: its kinds, whom they befall, and for how long. No I/O."""

from dataclasses import dataclass
from typing import Literal

Track = Literal["fabric", "control", "hosts"]
"""Troubles of one track come one after the other; those of several come together."""

Whom = Literal["link", "uplink", "hostlink", "spine", "manager", "server", "host", "fleet"]

BOTH = "both"


@dataclass(frozen=True)
class Kind:
    """A kind of trouble.

    Attributes:
        track: whose it is.
        whom: what it befalls: any link, one between switches, a host's; the hosts below two leaves, by a spine; ...
        lasts_s: from, to.
        ends_process: a process ends by it, so that another one is begun.
        needs_all_servers: it takes a bus server, so that no other may be away.
        named_within_s: so soon a finding must name it; None where nothing has to, or may.
        may_be_named: a finding that names it is right.
    """

    track: Track
    whom: Whom
    lasts_s: tuple[float, float]
    ends_process: bool = False
    needs_all_servers: bool = False
    named_within_s: float | None = None
    may_be_named: bool = False


_FAULT_S, _STANDS_S = (12.0, 20.0), (10.0, 30.0)

KINDS = {
    "cut": Kind("fabric", "link", _FAULT_S, named_within_s=10.0, may_be_named=True),
    "silent": Kind("fabric", "link", _FAULT_S, named_within_s=5.0, may_be_named=True),
    "silent_one_way": Kind("fabric", "link", _FAULT_S, named_within_s=5.0, may_be_named=True),
    "loss": Kind("fabric", "link", _FAULT_S, named_within_s=10.0, may_be_named=True),
    "flap": Kind("fabric", "link", _FAULT_S, named_within_s=10.0, may_be_named=True),
    "slow_link": Kind("fabric", "uplink", _FAULT_S, may_be_named=True),
    "slow_sender": Kind("fabric", "hostlink", _FAULT_S, may_be_named=True),
    "slow_receiver": Kind("fabric", "hostlink", _FAULT_S, may_be_named=True),
    "collision": Kind("fabric", "spine", _FAULT_S),
    "manager_killed": Kind("control", "manager", (10.0, 15.0), ends_process=True),
    "manager_stopped": Kind("control", "manager", _STANDS_S),
    "manager_cut_off": Kind("control", "manager", _STANDS_S),
    "server_killed": Kind("control", "server", (10.0, 15.0), ends_process=True, needs_all_servers=True),
    "server_stopped": Kind("control", "server", _STANDS_S, needs_all_servers=True),
    "server_cut_off": Kind("control", "server", _STANDS_S, needs_all_servers=True),
    "keys_rotated": Kind("control", "fleet", (15.0, 20.0)),
    "agent_killed": Kind("hosts", "host", (10.0, 15.0), ends_process=True),
    "agent_stopped": Kind("hosts", "host", _STANDS_S),
    "agent_restarted": Kind("hosts", "host", (10.0, 15.0), ends_process=True),
    "dataplane_upgraded": Kind("hosts", "host", (5.0, 10.0)),
    "host_cut_off": Kind("hosts", "host", _STANDS_S),
    "host_left": Kind("hosts", "host", _STANDS_S, ends_process=True),
    "host_revoked": Kind("hosts", "host", _STANDS_S),
}

ABSENCE = "server_away"
"""A bus server that is gone for long, beside all else."""

TRACKS: tuple[Track, ...] = ("fabric", "control", "hosts")


@dataclass(frozen=True)
class Trouble:
    """One of them: when it begins and ends, in seconds since the start, and what it is in detail.

    Attributes:
        kind: of `KINDS`, or `ABSENCE`.
        target: a link, spine, manager, server or host; `leader` for the manager that leads then; empty for the fleet.
        direction: of a link, or `BOTH`.
        share: of packets that are lost.
    """

    kind: str
    target: str
    begin_s: float
    end_s: float
    direction: str = BOTH
    share: float = 1.0

    @property
    def told(self) -> str:
        """For people."""
        words = [self.kind.replace("_", " "), self.direction if self.direction != BOTH else self.target]
        if self.kind == "loss":
            words.append(f"{self.share:.1%}")
        return " ".join(word for word in words if word)
