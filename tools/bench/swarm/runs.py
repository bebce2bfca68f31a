"""What is found in one run, as plain data."""

import re
from dataclasses import dataclass, field
from typing import Any

BEGINS = ("link_silent", "link_lossy", "link_dead")
"""The events by which a manager names a link that loses packets."""


@dataclass
class Fault:
    """A link that lost packets for a while, both ways.

    Attributes:
        cable: as findings name it.
        pod: the number of the pod that it is of.
        to_core: whether it joins a spine and a core.
        began_s, lasted_s: when.
        named_s: how long it took the manager of each pod to name it that did.
    """

    cable: str
    pod: int
    to_core: bool
    began_s: float
    lasted_s: float
    named_s: dict[int, float] = field(default_factory=dict)

    def read(self, pod: int, events: list[dict[str, Any]]) -> None:
        """What a pod's manager said of the fabric."""
        after_s = [
            event["time_s"] - self.began_s
            for event in events
            if event["kind"] in BEGINS and _names(event, self.cable)
        ]
        named_s = min((each for each in after_s if 0 <= each <= self.lasted_s), default=None)
        if named_s is not None:
            self.named_s[pod] = named_s


def misnamed(faults: list[Fault], events: list[dict[str, Any]]) -> list[str]:
    """What was said to be wrong with the fabric and was not; one direction of a link that lost packets was."""
    ends = [fault.cable.split(" - ") for fault in faults]
    right = [f"{a} {between} {b}" for a, b in (*ends, *(each[::-1] for each in ends)) for between in "->"]
    return sorted(
        event["detail"].partition(":")[0]
        for event in events
        if not event["kind"].endswith("_over") and not any(_names(event, link) for link in right)
    )


def _names(event: dict[str, Any], link: str) -> bool:
    """Whether an event is about a link, or says that it may be that link."""
    return re.search(rf"(?<![\d.]){re.escape(link)}(?!\d)", event["detail"]) is not None


@dataclass(kw_only=True)
class PodRun:
    """Of one pod: processor time in cores, rates by the second, of the pods' own seconds.

    Attributes:
        cores, memory_bytes: the manager's.
        duties: its processor time by what for, in cores, the most first.
        messages_up_per_s, bytes_up_per_s: what its hosts said.
        messages_down_per_s, bytes_down_per_s: what they were told.
        loop_lag_s, backlog_s: the longest that its loop stood still, and that what its hosts said waited, at the end.
        lost_on_the_way: reports that the manager found missing.
        moves: of queue pairs.
        times_led: how often a manager began to lead; None where its history does not tell.
        misnamed: what was said to be wrong with the fabric and was not.
    """

    pod: str
    cores: float
    memory_bytes: int
    duties: dict[str, float]
    messages_up_per_s: float
    bytes_up_per_s: float
    messages_down_per_s: float
    bytes_down_per_s: float
    loop_lag_s: float
    backlog_s: float
    lost_on_the_way: int
    moves: int
    times_led: int | None
    misnamed: list[str]

    @property
    def unattributed(self) -> float:
        """Of `cores` what is in no duty: messages before they are unpacked and once they are packed, questions, the loop."""
        return self.cores - sum(self.duties.values())


@dataclass(kw_only=True)
class Run:
    """Of all pods.

    Attributes:
        slowed: how many seconds one of the pods' lasted.
        swarm_cores, bus_cores, bus_bytes: of the other two processes: processor time, and the bus server's memory.
        unsent: messages of hosts that the bus did not take.
        root: the name of the pod whose leader is the root; None where nobody is known to be.
        between_pods: bytes a second that leaders told each other, by subject.
        counting_lost: how often who counted them lost the bus, and missed some.
        probes_between_pods: paths that lead from one pod to another and are probed.
        first_plan_s: from when a manager that was killed and started again heard the first host to its first plan;
            None where that was not tried.
    """

    nics: int
    slowed: float
    pods: list[PodRun]
    swarm_cores: float
    bus_cores: float
    bus_bytes: int
    swarm_late_s: float
    unsent: int
    faults: list[Fault]
    root: str | None
    between_pods: dict[str, float]
    counting_lost: int
    probes_between_pods: int
    first_plan_s: float | None = None
