"""What is lost last: links die under a transfer whose window is full before the path is given up.

Nothing follows by which the receiver would notice the loss, so the sender waits for its timer, or until it is told to go
back. Each timer is tried without that and with it; the long one with a receiver, too, that gives its own way up later, so
that what it acknowledges first is lost as well.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.goback.process import GoBackOrder
from cwdp.dataplane.abi import Direction, EventKind, PathState
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.pinned.ring import Ring
from cwdp.errors import LabError
from tools.rdma.scenarios.failure import DEAD_AFTER_NS, Helper, Way, find_ways, helper, watched
from tools.rdma.scenarios.moves import mover
from tools.rdma.scenarios.scenario import Bench, Scenario
from tools.rdma.testbed.fabric import silent
from tools.rdma.testbed.programs import Running, Transfer, started

LATER_NS = 400_000_000
ARMS = {"waits": (False, 0), "goes back": (True, 0), "goes back, receiver later": (True, LATER_NS)}
"""Whether the sender is told to go back, and how much later the receiver takes a path for dead."""

TIMERS = {"19": ("waits", "goes back"), "21": tuple(ARMS)}
"""2.1 s and 8.6 s (IBTA 9.7.6.1.3). Shorter ones run out by themselves here, where everything takes so much longer."""

CUTS = 2
MESSAGES = 480
"""Enough to go on for longer than all cuts take, on a slow machine too."""
HOLD_DOWN_NS = 500_000_000
_FLOW_S = 1.0
"""Between two cuts, with the path in use."""

_KNOWN_S = 4.0
"""For a look at the queue pairs, and for acknowledgements after it. They are looked for at every order and once a second,
but more rarely where that takes long: after a look of 1 s, as on a busy machine, 5 s later."""

_TIMEOUT_NS = 40_000_000_000
_POLL_S = 0.02
_GOES_ON_PACKETS = 100


def plan() -> Iterator[tuple[str, Scenario]]:
    """Yield a run for each timer; they need the dataplane on both NICs."""
    for timer in TIMERS:
        yield f"failure: tail loss, timer {timer}", partial(run, timer)


def run(timer: str, bench: Bench) -> dict[str, Any]:
    """The timer's arms, one after the other."""
    return {"dead_after_ns": DEAD_AFTER_NS} | {arm: run_arm(timer, bench, arm) for arm in TIMERS[timer]}


def run_arm(timer: str, bench: Bench, arm: str) -> dict[str, Any]:
    """Cut the link of a steered transfer some times, and measure how long nothing was delivered each time."""
    goes_back, later_ns = ARMS[arm]
    telling: Helper | None = None
    transfer = Transfer("pyverbs", 4, messages=MESSAGES, ack_timeout=timer, retries=7)
    hosts = (bench.source, bench.target)
    with ExitStack() as stack:
        maps = stack.enter_context(watched(hosts))
        maps[1].control["dead_after_ns"] += later_ns
        before = [each.counters() for each in maps]
        for each in maps:
            each.control["hold_down_ns"] = each.control["hold_down_max_ns"] = HOLD_DOWN_NS
        if goes_back:
            orders = [GoBackOrder(host.ifname, 0, str(host.ipv4), str(host.ipv6)) for host in hosts]
            telling = stack.enter_context(helper("cwdp.agent.goback.process", orders))
        running = stack.enter_context(started(transfer, *hosts))
        steering = stack.enter_context(mover(running, *hosts, transfer.version))
        primary, backup = find_ways(steering, bench.counters)
        steering.move(primary.sport, backup.sport)
        if telling is not None:
            telling.order()
        time.sleep(_KNOWN_S)
        cuts = [_cut(maps, primary, running) for _ in range(CUTS)]
        running.send_no_more()
        record: dict[str, Any] = {"primary": asdict(primary), **asdict(running.finish())}
        record["dataplane"] = [_since(each, earlier) for each, earlier in zip(maps, before, strict=True)]
    record["told"] = telling.totals if telling is not None else {}
    received = json.loads(record.pop("server_output") or "{}")
    arrived_ns = np.array(received.pop("arrived_ns", []), dtype=np.int64)
    return record | {"received": received, "cuts": [cut | stall(arrived_ns, cut) for cut in cuts]}


def stall(arrived_ns: NDArray[np.int64], cut: dict[str, int]) -> dict[str, int]:
    """The longest time without a delivery around a cut.

    Args:
        arrived_ns: when each message arrived, shape (n,), ascending.
        cut: as of `_cut`, CLOCK_MONOTONIC.

    Returns:
        How long it lasted, and how long from when the path had been silent for long enough.
    """
    around = arrived_ns[: np.searchsorted(arrived_ns, cut["went_on_ns"]) + 1]
    around = around[max(np.searchsorted(around, cut["cut_ns"]) - 1, 0) :]
    if len(around) < 2:
        return {}
    longest = int(np.diff(around).argmax())
    began_ns, ended_ns = around[longest : longest + 2].tolist()
    return {"stall_ns": ended_ns - began_ns, "beyond_detection_ns": ended_ns - cut["dead_ns"]}


def _cut(maps: list[Maps], primary: Way, running: Running) -> dict[str, int]:
    """Cut the link, wait until the transfer goes on by its backup, and mend it."""
    for each in maps:
        _await(running, partial(_is_up, each, primary.sport))
    time.sleep(_FLOW_S)
    source, target = maps
    events = Ring(source.events, source.control["event_head"])
    given_up: list[np.void] = []
    cut_ns = time.monotonic_ns()
    with silent(f"l1-{primary.there}"):
        while not given_up and _is_time(running, cut_ns):
            time.sleep(_POLL_S)
            given_up = [event for event in events.take() if event["kind"] == EventKind.PATH_DOWN]
        packets = _packets(target)
        while _packets(target) < packets + _GOES_ON_PACKETS and _is_time(running, cut_ns):
            time.sleep(_POLL_S)
    if not given_up:
        raise LabError("the dataplane did not give the path up", running.finish().client_output)
    silent_since_ns = int(given_up[0]["local_ns"]) - int(given_up[0]["lasted_ns"])
    return {
        "cut_ns": cut_ns,
        "dead_ns": silent_since_ns + DEAD_AFTER_NS,
        "given_up_ns": int(given_up[0]["local_ns"]),
        "went_on_ns": time.monotonic_ns(),
    }


def _await(running: Running, condition: Callable[[], bool]) -> None:
    began_ns = time.monotonic_ns()
    while not condition():
        if not _is_time(running, began_ns):
            raise LabError("a path did not come back in time", running.finish().client_output)
        time.sleep(_POLL_S)


def _is_time(running: Running, since_ns: int) -> bool:
    return running.is_running() and time.monotonic_ns() - since_ns < _TIMEOUT_NS


def _is_up(maps: Maps, sport: int) -> bool:
    path = maps.paths[(maps.paths["sport"] == sport) & (maps.paths["users"] > 0)]
    return bool((path["state"] == PathState.UP).all() and (path["unanswered"] < 2).all())


def _packets(maps: Maps) -> int:
    return int(maps.qps[Direction.INGRESS]["packets"].sum())


def _since(maps: Maps, before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in maps.counters().items() if count != before[name]}
