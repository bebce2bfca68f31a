"""Traffic in a lab whose fleet is up, with what is done meanwhile, and how busy the machine was."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from tools.lab import Lab, status
from tools.roce.collective.rank import Rank
from tools.roce.flows import Flow
from tools.roce.generator import Generator

SNAPSHOT_S = 0.1
WATCH_S = 0.3
NICE_FIELD, IDLE_FIELD, IOWAIT_FIELD = 1, 3, 4


class Fault(Protocol):
    """What can be broken in a lab."""

    def make(self, lab: str) -> None:
        """Break it."""

    def mend(self, lab: str) -> None:
        """Mend it."""


class IdleShare:
    """What of the machine's processors has been idle since this was made, or had none but niced processes to run."""

    def __init__(self) -> None:
        self._before = _ticks()

    def read(self) -> float:
        """From 0 to 1; what is near 0 was measured on a machine that was too busy."""
        idle, total = (now - then for now, then in zip(_ticks(), self._before, strict=True))
        return idle / total if total else 1.0


def send(
    lab: Lab,
    flows: Sequence[Flow],
    seconds: float,
    beside: AbstractContextManager[Any] | None = None,
    during: Callable[[Generator], None] | None = None,
    *,
    ranks: Sequence[Rank] = (),
) -> dict[str, Any]:
    """Have queue pairs send for some time.

    Args:
        lab: where.
        flows: the queue pairs.
        seconds: from the first packet to the end.
        beside: entered before the first packet and left after the last.
        during: called once they send; what it takes counts as part of the time.
        ranks: what posts messages to flows of its own.

    Returns:
        The generator's result, with `idle_share` of the machine and `messages` of the ranks' iterations.
    """
    with (
        Generator(flows, lab.popen, lab.run_dir, SNAPSHOT_S, ranks=ranks) as generator,
        beside or nullcontext(),
    ):
        generator.start()
        started, idle = time.monotonic(), IdleShare()
        if during is not None:
            during(generator)
        time.sleep(max(0.0, seconds - (time.monotonic() - started)))
        share = idle.read()
        return generator.stop() | {"idle_share": share, "messages": generator.iterations()}


def interrupt(fault: Fault, lab_name: str, seconds: float) -> tuple[int, int]:
    """Make a fault and mend it after some time; just before each of both, CLOCK_MONOTONIC in ns."""
    made_ns = time.monotonic_ns()
    fault.make(lab_name)
    try:
        time.sleep(seconds)
    finally:
        mended_ns = time.monotonic_ns()
        fault.mend(lab_name)
    return made_ns, mended_ns


def links_in_use(lab: Lab, least_bps: float) -> list[str]:
    """The directed links between switches (`l1>s2`) that carry so much now, by the switches' counters."""
    before, start = _sent_bytes(lab), time.monotonic()
    time.sleep(WATCH_S)
    after, end = _sent_bytes(lab), time.monotonic()
    return [name for name, sent in after.items() if (sent - before[name]) * 8 >= least_bps * (end - start)]


def _sent_bytes(lab: Lab) -> dict[str, int]:
    """What each switch has sent to each other, by directed link."""
    return {
        direction: end["tx_bytes"]
        for link in status.collect(lab.name)["links"]
        for direction, end in zip(link["directions"], link["ends"], strict=True)
        if set(direction.split(">")) <= set(lab.topology.switches)
    }


def _ticks() -> tuple[int, int]:
    """Ticks that could be had and all ticks, of all processors since boot."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[NICE_FIELD] + fields[IDLE_FIELD] + fields[IOWAIT_FIELD], sum(fields)
