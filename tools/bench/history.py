"""What history costs: queries of a million events, room on disk, and the work of keeping it for 1,000 NICs."""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np

from cwdp.shared.bus.edges import PathStat, path_rows
from cwdp.shared.bus.records import QP_ROW
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.fabric.routes import DirectedLink, Routes
from manager.history import queries, samples
from manager.history.coding import LINK_FIELDS, PAIR_FIELDS
from manager.history.measured import Measured
from manager.history.queries import Wanted
from manager.history.queue_pairs import KEPT_S, chosen
from manager.history.records import EventRecord, Message
from manager.history.rings import Ring
from manager.history.service import LINKS_EVERY_S, PAIRS_EVERY_S, WRITE_EVERY_S
from manager.history.store import Store
from manager.links.loads import LinkLoads
from manager.queue_pairs.counters import NicReport
from manager.state import FleetState
from tools.bench.figures import Figure, figure

EVENTS, DAYS, DAY_S = 1_000_000, 90, 86_400.0
EVENTS_A_MESSAGE = 4_000
KINDS, HOSTS = 30, 1_000
QUERY_TARGET_MS = 200.0

LEAVES, SPINES, HOSTS_A_LEAF = 32, 32, 32
PEERS, PATHS, QUEUE_PAIRS = 10, 8, 32
SECONDS = 600
EVENTS_A_WRITE = 2
LINK_TARGET_BYTES = 25_000
CPU_TARGET = 0.01
MOST_BYTES = 1 << 34


def figures() -> Iterator[Figure]:
    """A minute."""
    with tempfile.TemporaryDirectory() as directory:
        yield from query_figures(Path(directory))
    with tempfile.TemporaryDirectory() as directory:
        yield from keeping_figures(Path(directory))


def query_figures(directory: Path) -> Iterator[Figure]:
    """The slowest of each kind of query, with nothing of the database in this process's memory."""
    store, rng, now_s = Store(directory), Random(1), time.time()
    times = sorted(now_s - rng.random() * DAYS * DAY_S for _ in range(EVENTS))
    for number, start in enumerate(range(0, EVENTS, EVENTS_A_MESSAGE), 1):
        events = [_event(time_s, rng) for time_s in times[start : start + EVENTS_A_MESSAGE]]
        store.append(Message(origin="bench", number=number, records=[*events]))
        store.sent(number)
    whole = Wanted(since_s=0.0, until_s=now_s)
    wanted = {
        "the newest 1,000": whole,
        "of a host": replace(whole, host="h7"),
        "of a kind": replace(whole, kinds=("kind7",)),
        "of a host and three kinds": replace(whole, host="h7", kinds=("kind1", "kind2", "kind3")),
        "of what never was": replace(whole, host="nobody", kinds=("nothing",)),
        "of 3 days, 10,000": replace(whole, since_s=now_s - 3 * DAY_S, limit=10_000),
    }
    took_ms = {name: max(_query_ms(store, each) for _ in range(5)) for name, each in wanted.items()}
    reference = {name: round(took, 1) for name, took in took_ms.items()}
    yield figure("history.query_of_1000000_events", max(took_ms.values()), "ms", reference, QUERY_TARGET_MS)
    yield figure("history.bytes_an_event", store.size_bytes / EVENTS, "bytes", None, None)
    store.close()


def _event(time_s: float, rng: Random) -> EventRecord:
    return EventRecord(
        time_s=time_s,
        host=f"h{rng.randrange(HOSTS)}",
        kind=f"kind{rng.randrange(KINDS)}",
        nic="nic0",
        detail="to 10.2.0.1 from port 50000: silent for 11.8 ms, 9 pulses unanswered; 1 queue pairs take their backup",
    )


def _query_ms(store: Store, wanted: Wanted) -> float:
    started = time.perf_counter()
    with queries.reading(store.path) as db:
        queries.events(db, wanted)
    return 1e3 * (time.perf_counter() - started)


def keeping_figures(directory: Path) -> Iterator[Figure]:
    """Ten minutes of a fabric of 1,024 NICs, as fast as they can be written; processor time in all threads."""
    store, rng = Store(directory), np.random.default_rng(1)
    links = Measured(Ring(directory, "links", store.generation), "links", LINK_FIELDS, store)
    pairs = Measured(Ring(directory, "pairs", store.generation), "pairs", PAIR_FIELDS, store)
    state, start_s = _state(rng), time.time()
    routes = _routes()
    costs = dict.fromkeys(("links", "leaf_pairs", "queue_pairs", "events"), 0.0)

    def timed(what: str, work: Callable[[], object]) -> None:
        before = time.process_time()
        work()
        costs[what] += time.process_time() - before

    began = time.process_time()
    for step in range(int(SECONDS / WRITE_EVERY_S)):
        time_s = start_s + step * WRITE_EVERY_S
        timed("events", lambda: store.append(_message(step, time_s)))  # noqa: B023 - called at once
        if step % int(LINKS_EVERY_S / WRITE_EVERY_S) == 0:
            sample = samples.of_links(_loads(routes, rng), 0.0)
            assert sample is not None
            timed("links", lambda: links.add(sample.names, sample.values, time_s, MOST_BYTES))  # noqa: B023
        if step % int(PAIRS_EVERY_S / WRITE_EVERY_S) == 0:
            timed("leaf_pairs", lambda: _measure_pairs(pairs, state, routes, time_s))  # noqa: B023
            timed("queue_pairs", lambda: store.add_queue_pairs(time_s, chosen(state, 1.0), KEPT_S))  # noqa: B023
    took_s = time.process_time() - began
    shares = {name: round(cost / SECONDS, 5) for name, cost in costs.items()}
    reference = {"nics": LEAVES * HOSTS_A_LEAF, "links": len(routes.links), "paths": len(state.owd), **shares}
    yield figure(
        "history.keeping_1024_nics", sum(costs.values()) / SECONDS, "of one core", reference, CPU_TARGET
    )
    yield figure("history.simulation", took_s, "s", {"seconds": SECONDS}, None)
    name = "history.bytes_a_link"
    yield figure(name, links.ring.size_bytes / links.names, "bytes", None, LINK_TARGET_BYTES)
    yield figure("history.bytes_a_leaf_pair", pairs.ring.size_bytes / pairs.names, "bytes", None, None)
    store.close()


def _measure_pairs(pairs: Measured, state: FleetState, routes: Routes, time_s: float) -> None:
    sample = samples.of_leaf_pairs(state.owd.extremes(1.0), routes)
    assert sample is not None
    pairs.add(sample.names, sample.values, time_s, MOST_BYTES)


def _message(step: int, time_s: float) -> Message:
    rng = Random(step)
    records = [_event(time_s, rng) for _ in range(EVENTS_A_WRITE)]
    return Message(origin="bench", number=step + 1, records=[*records])


def _nic(number: int) -> str:
    return f"h{number}/nic0"


def _routes() -> Routes:
    found = [(_nic(i), f"l{i // HOSTS_A_LEAF}") for i in range(LEAVES * HOSTS_A_LEAF)]
    found += [(f"l{leaf}", f"s{spine}") for leaf in range(LEAVES) for spine in range(SPINES)]
    both = [DirectedLink(a, b) for a, b in found] + [DirectedLink(b, a) for a, b in found]
    return Routes(1, tuple(both))


def _loads(routes: Routes, rng: np.random.Generator) -> LinkLoads:
    count = len(routes.links)
    queue = rng.uniform(0, 1e5, count)
    return LinkLoads(
        routes=routes,
        queue_p50_ns=queue,
        queue_p99_ns=2 * queue,
        load_bps=rng.uniform(0, 4e11, count),
        loss=rng.uniform(0, 1e-3, count),
    )


def _state(rng: np.random.Generator) -> FleetState:
    """All paths and queue pairs of the fleet, reported in full windows."""
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    count = LEAVES * HOSTS_A_LEAF
    for report in range(10):
        for i in range(count):
            peers = [(7 * i + 13 * k + 1) % count for k in range(PEERS)]
            paths = path_rows([_path(i, peer, k) for peer in peers for k in range(PATHS)])
            state.owd.add(f"h{i}", paths, report / 10)
    for turn in range(2):
        for i in range(count):
            rows = np.zeros(QUEUE_PAIRS, QP_ROW)
            rows["qpn"], rows["addr"] = np.arange(QUEUE_PAIRS), rng.integers(0, 255, 16)
            rows["bytes"] = turn * rng.integers(1, 1 << 20, QUEUE_PAIRS)
            state.traffic.queue_pairs.hear(
                [NicReport((f"h{i}", "nic0"), rows)], local_ns=turn * 10**9, now_s=float(turn)
            )
    return state


def _path(i: int, peer: int, k: int) -> PathStat:
    return PathStat(
        src=_nic(i),
        dst=_nic(peer),
        sport=50_000 + k,
        reply_sport=60_000 + k,
        sent=100,
        lost=1,
        queued=3,
        rtt_min_ns=10_000,
        fwd_min_ns=5000,
        fwd_p50_ns=5100,
        fwd_p99_ns=9000,
        rev_min_ns=4900,
        rev_p50_ns=5000,
        rev_p99_ns=7000,
        bound_ns=40,
    )
