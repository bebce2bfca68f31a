"""Slices under real RDMA, on a kernel that has fq: held to rates, changed and let go in the middle of a transfer."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

from pyroute2 import IPRoute

from cwdp.dataplane.abi import Direction
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.shared.slices import Match, Slice, SliceSet
from cwdp.slices.borrowing import Borrowing
from cwdp.slices.slicing import Slicing
from tools.rdma.scenarios.scenario import Bench, Scenario, recorded
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.programs import Transfer, started

TRANSFER = Transfer("ib_write_bw", 4, messages=400)
RATES = ("4mbit", "8mbit")
ETHERNET_BYTES = 14
SETTLE_S = 2.5
"""Packets that wait keep the time they were given: so long, at the lower rate, lasts what a queue pair has under way."""

WINDOW_S = 3.0
BORROW_INTERVAL_S = 0.02


def plan() -> Iterator[tuple[str, Scenario]]:
    """Yield every scenario with its name."""
    yield "slices", run_slices


def run_slices(bench: Bench) -> dict[str, Any]:
    """One transfer: at two rates, then lent what another slice leaves, then without slices to its end."""
    with (
        _slicing(bench.source) as (slicing, sender),
        _maps(bench.target) as receiver,
        recorded(bench) as record,
    ):
        slicing.apply(_held_to(bench.target, RATES[0]))
        record["enforcer"], record["link_bps"] = slicing.enforcer.name.lower(), slicing.link_bps
        with started(TRANSFER, bench.source, bench.target) as running:
            record["rates_bps"] = {}
            for rate in RATES:
                slicing.apply(_held_to(bench.target, rate))
                record["rates_bps"][rate] = _rate_bps(receiver)
            slicing.apply(_with_idle_one(bench.target, RATES[1]))
            with _borrowing(sender):
                record["lent_bps"] = _rate_bps(receiver)
            record["listed"] = [asdict(entry.usage) for entry in slicing.listed()]
            record["running"] = running.is_running()
            slicing.delete()
            record.update(asdict(running.finish()))
    return record


@contextmanager
def _slicing(host: RdmaHost) -> Iterator[tuple[Slicing, Maps]]:
    with _maps(host) as maps, IPRoute() as ip:
        slicing = Slicing(maps, ip, host.ifname)
        try:
            yield slicing, maps
        finally:
            slicing.delete()


@contextmanager
def _maps(host: RdmaHost) -> Iterator[Maps]:
    loader.load(host.ifname)
    with Maps(tree.here(host.ifname)) as maps:
        yield maps


@contextmanager
def _borrowing(maps: Maps) -> Iterator[None]:
    """Let slices borrow, as the agent does."""
    borrowing, ended = Borrowing(maps), threading.Event()

    def run() -> None:
        while not ended.wait(BORROW_INTERVAL_S):
            borrowing.step(time.monotonic_ns())

    thread = threading.Thread(target=run, name="borrowing")
    with ExitStack() as stack:
        stack.callback(thread.join)
        stack.callback(ended.set)
        thread.start()
        yield


def _held_to(target: RdmaHost, rate: str) -> SliceSet:
    match = (Match(dst=str(target.ipv4)),)
    return SliceSet(slice=(Slice(name="held", guaranteed=rate, ceiling=rate, match=match),))


def _with_idle_one(target: RdmaHost, rate: str) -> SliceSet:
    """The same guarantee without a ceiling, beside a slice that has the rest of the link and does not use it."""
    held = Slice(name="held", guaranteed=rate, match=(Match(dst=str(target.ipv4)),))
    return SliceSet(slice=(held, Slice(name="idle", guaranteed="12mbit", match=(Match(dscp=63),))))


def _rate_bps(receiver: Maps) -> float:
    """The rate at which Ethernet frames arrive, once what waited before has passed."""
    time.sleep(SETTLE_S)
    (before, start), (after, end) = _received(receiver), _received(receiver, wait_s=WINDOW_S)
    return (after - before) * 8 / (end - start)


def _received(receiver: Maps, wait_s: float = 0.0) -> tuple[int, float]:
    time.sleep(wait_s)
    pairs = receiver.qps[Direction.INGRESS]
    frame_bytes = int(pairs["bytes"].sum() + ETHERNET_BYTES * pairs["packets"].sum())
    return frame_bytes, time.monotonic()
