"""What is done to links of an InfiniBand lab. The subnet manager notices by itself, as it would on hardware."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cwdp.errors import LabError
from tools.ib.lab import links, programs, state
from tools.ib.lab.console import Console
from tools.ib.lab.growing import BEGUN
from tools.ib.lab.links import Link
from tools.ib.lab.state import Fault, State
from tools.ib.topology import port_name
from tools.waiting import wait_for

WIDTHS = {1: 1, 2: 16, 4: 2, 8: 4, 12: 8}
"""Bits of LinkWidthEnabled by lanes (IBTA volume 1, 14.2.5.6)."""

SPEEDS = {2_500_000_000: 0b001, 5_000_000_000: 0b011}
"""Bits of LinkSpeedEnabled, of all speeds up to what a lane shall carry on the wire; whole links have 10 Gb/s."""

ALL_WIDTHS, ALL_SPEEDS = 31, 7
PORT_S = 10.0

TRIES, STAYS_S = 5, 0.3
"""A subnet manager that configures ports at that moment writes back what it read before: so it is looked whether all stays."""

KEEPER = "tools.ib.lab.growing"
BEGUN_S, POLL_S = 30.0, 0.02

DOWNED = "LinkDownedCounter"
SYMBOL_ERRORS, WAIT = "SymbolErrorCounter", "PortXmitWait"
"""Counters of ports, as ibsim's console names them."""


def cut(name: str, link: str, port: int | None) -> None:
    """Take the carrier of links; both ends count that they went down."""
    with _changing(name, link, port) as (known, console, found):
        for each in found:
            fault = _fault(known, each)
            if fault.cut:
                continue
            fault.cut = True
            known.downed[each.key] = known.downed.get(each.key, 0) + 1
            console.ask(f"Unlink {_quoted(each.a)}", *_set(each, DOWNED, known.downed[each.key]))


def degrade(name: str, link: str, port: int | None, *, width: int, speed_bps: int) -> None:
    """Have links use fewer lanes, or slower ones; 0 leaves what is."""
    with _changing(name, link, port) as (known, console, found):
        for each in found:
            fault = _fault(known, each)
            if fault.cut:
                raise LabError(f"the link {each.key} is cut", f"Run `cwdp lab ib heal {link}` first.")
            fault.width, fault.speed_bps = width or fault.width, speed_bps or fault.speed_bps
            for _ in range(TRIES):
                if width:
                    _enable(name, each, "width", WIDTHS[width])
                if speed_bps:
                    _enable(name, each, "speed", SPEEDS[speed_bps])
                time.sleep(STAYS_S)
                if _is_degraded(console, each, width, speed_bps):
                    break
            else:
                raise LabError(f"the subnet manager undoes what is set at {each.key}", "Try again.")


def grow(name: str, link: str, port: int | None, counter: str, per_s: float) -> None:
    """Have a counter grow at the first-named end of links; 0 ends it, and what was counted stays."""
    with _changing(name, link, port) as (known, _, found):
        for each in found:
            growing = _fault(known, each).growing
            end = port_name(*each.a)
            counters = growing.setdefault(end, {})
            counters[counter] = per_s
            if not per_s:
                del counters[counter]
            if not counters:
                del growing[end]
    if per_s:
        keep_growing(name)


def keep_growing(name: str) -> None:
    """Start what has counters grow, if it does not run, and wait until it does.

    Raises:
        LabError: it does not begin.
    """
    log = state.run_dir(name) / "growing.log"
    with state.locked(name):
        state.require(name)
        if KEEPER in programs.running(name).values():
            return
        programs.start(name, [sys.executable, "-m", KEEPER, name], log)
    if not wait_for(lambda: BEGUN in log.read_text(), BEGUN_S, poll_s=POLL_S):
        raise LabError(f"what has counters grow did not begin: {log.read_text()[-200:]}", "Try again.")


def heal(name: str, link: str, port: int | None) -> None:
    """Undo everything that was done to links; what was counted stays."""
    with _changing(name, link, port) as (known, console, found):
        for each in found:
            fault = _fault(known, each)
            if fault.cut:
                console.ask(f"ReLink {_quoted(each.a)}")
            if fault.width:
                _enable(name, each, "width", ALL_WIDTHS)
            if fault.speed_bps:
                _enable(name, each, "speed", ALL_SPEEDS)
            known.faults[each.key] = Fault()


@contextmanager
def _changing(name: str, link: str, port: int | None) -> Iterator[tuple[State, Console, Sequence[Link]]]:
    with state.locked(name):
        known = state.require(name)
        found = links.find(known.spec.topology, link, port)
        console = Console(name, state.run_dir(name))
        console.ask()
        try:
            yield known, console, found
        finally:
            known.faults = {key: fault for key, fault in known.faults.items() if fault.is_any}
            state.save(known)


def _fault(known: State, link: Link) -> Fault:
    return known.faults.setdefault(link.key, Fault())


def _enable(name: str, link: Link, what: str, bits: int) -> None:
    """Have the first end of a link enable what is told, and use it at once, asked by its own node: no way there is needed."""
    node, port = link.a
    path = ["-D", "0", str(port)]
    try:
        done = subprocess.run(
            ["ibportstate", *path, what, str(bits)],
            cwd=state.run_dir(name),
            env=programs.environment(name, node),
            capture_output=True,
            text=True,
            timeout=PORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(
            f"port {port} of {node} does not answer", f"Run `cwdp lab ib status --name {name}`."
        ) from error
    if done.returncode:
        raise LabError(f"ibportstate failed at {node}: {done.stderr.strip()[-200:]}", "Try again.")


def _is_degraded(console: Console, link: Link, width: int, speed_bps: int) -> bool:
    port = console.ports(link.a[0])[link.a]
    return port.width == (width or port.width) and port.lane_gbps * 1e9 == (speed_bps or port.lane_gbps * 1e9)


def _set(link: Link, counter: str, value: int) -> list[str]:
    return [f"PerformanceSet {_quoted(end)} PortCounters.{counter}={value}" for end in (link.a, link.b)]


def _quoted(port: tuple[str, int]) -> str:
    return f'"{port[0]}"[{port[1]}]'
