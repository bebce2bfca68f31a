"""From one snapshot to the next: what comes of few changes is what comes of everything that was told."""

import random
from collections.abc import Mapping

import pytest
from fabric_fakes import FakeClos, FakeNic

from cwdp.shared.bus.messages import Trace, TraceReport
from manager.fabric import fabric as fabric_module
from manager.fabric.fabric import Fabric
from manager.fabric.path_counts import PathCounts
from manager.fabric.routes import DirectedLink, PathName
from manager.fabric.traces import TraceStore

Told = dict[PathName, Trace]


def _hear(fabric: Fabric, told: Mapping[PathName, Trace], now_s: float) -> None:
    for path, trace in told.items():
        report = TraceReport(host=path.src.partition("/")[0], traces=[trace])
        fabric.hear(report, ["nic0", "nic1"], now_s)


def _shown(fabric: Fabric) -> dict[PathName, tuple[DirectedLink, ...]]:
    links = fabric.routes.links
    return {path: tuple(links[n] for n in crossed) for path, crossed in fabric.routes.paths.items()}


def _anew(clos: FakeClos, told: Told, addresses: Mapping[str, str] | None = None) -> Fabric:
    fabric = Fabric()
    fabric.know(clos.addresses if addresses is None else addresses)
    _hear(fabric, told, 0.0)
    fabric.step(0.0)
    return fabric


def _traced(clos: FakeClos, src: FakeNic, dst: FakeNic, sport: int) -> tuple[PathName, Trace]:
    return PathName(src.name, dst.address, sport), clos.trace(src, dst, sport)


def _assert_same_counts(counts: PathCounts, anew: PathCounts, fabric: Fabric) -> None:
    for pair in fabric.routes.pairs():
        assert counts.of(*pair) == anew.of(*pair)
        assert [counts.lacks(pair, enough) for enough in (None, 2)] == [
            anew.lacks(pair, enough) for enough in (None, 2)
        ]
    assert counts.covered_leaves() == anew.covered_leaves()


@pytest.mark.parametrize("seed", range(12))
def test_few_changes_come_to_what_everything_told_comes_to(seed: int) -> None:
    draw = random.Random(seed)
    clos = FakeClos(leaves=3, spines=4, hosts_per_leaf=3, nics=2)
    pairs = draw.sample(list(clos.pairs()), 90)
    spines = sorted({hop for pair in pairs for hop in clos.trace(*pair, 50_000).hops[1:-1] if hop})
    told: Told = dict(_traced(clos, *pair, 50_000 + k) for pair in pairs for k in range(12))
    fabric = _anew(clos, told)
    addresses = dict(clos.addresses)
    counts = PathCounts(fabric.routes)
    for turn in range(14):
        chosen = draw.sample(pairs, 5)
        what = draw.choice(["withdrawn", "more", "rerouted", "silent", "a lie", "a host leaves", "moved"])
        changed: Told = {}
        gone: list[PathName] = []
        if what == "more":
            changed = dict(_traced(clos, *pair, draw.randrange(50_000, 50_020)) for pair in chosen)
        elif what == "withdrawn":
            gone = [path for path in told if path.dst_addr in {dst.address for _, dst in chosen[:1]}]
        elif what == "a host leaves":
            gone = [path for path in told if path.src.partition("/")[0] == chosen[0][0].host]
        elif what == "moved":
            one, other = draw.sample(sorted(addresses), 2)
            addresses[one], addresses[other] = addresses[other], addresses[one]
            gone = [path for path in told if addresses[path.dst_addr] == path.src]
            fabric.know(addresses)
        elif what == "rerouted":
            clos.dead = (
                {(f"10.254.1.{draw.randint(1, 3)}", draw.choice(spines))} if draw.random() < 0.7 else set()
            )
            changed = dict(_traced(clos, *pair, 50_000 + k) for pair in chosen for k in range(12))
        elif what == "silent":
            clos.silent = {draw.choice(spines)} if draw.random() < 0.5 else set()
            changed = dict(_traced(clos, *pair, 50_000 + k) for pair in chosen for k in range(4))
        else:
            path, trace = _traced(clos, *chosen[0], 50_000)
            changed = {path: Trace(**{**_fields(trace), "hops": ["6.6.6.6", *trace.hops[1:]]})}
        for path in gone:
            del told[path]
        told |= changed
        fabric.store.forget(gone)
        _hear(fabric, changed, float(turn))
        fabric.step(float(turn))
        anew = _anew(clos, told, addresses)
        assert _shown(fabric) == _shown(anew), what
        before, counts = counts, PathCounts(fabric.routes, counts)
        whole = PathCounts(fabric.routes)
        _assert_same_counts(counts, whole, fabric)
        pairs_now = set(fabric.routes.pairs())
        others = {pair for pair in pairs_now if before.of(*pair) != counts.of(*pair)}
        assert others <= set(counts.recounted)


def _fields(trace: Trace) -> dict[str, object]:
    return {name: getattr(trace, name) for name in trace.__struct_fields__}


def test_where_nothing_is_in_doubt_paths_that_changed_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    clos = FakeClos(leaves=3, spines=4, hosts_per_leaf=3)
    pairs = list(clos.pairs())
    told = dict(_traced(clos, *pair, 50_000 + k) for pair in pairs for k in range(12))
    fabric = _anew(clos, told)
    monkeypatch.setattr(fabric_module, "judge", _never)
    more = dict(_traced(clos, *pair, 50_100) for pair in pairs[:5])
    _hear(fabric, more, 1.0)
    fabric.store.forget(list(told)[:7])
    fabric.step(1.0)
    assert len(fabric.routes.paths) == len(told) + len(more) - 7
    assert fabric.routes.version == 2


def test_a_link_that_one_host_tells_of_is_judged_by_what_is_said_near_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clos = FakeClos(leaves=3, spines=4, hosts_per_leaf=3)
    pairs = list(clos.pairs())
    new = pairs[0][0]
    told = dict(
        _traced(clos, *pair, 50_000 + k) for pair in pairs for k in range(12) if new.host not in _hosts(pair)
    )
    fabric = _anew(clos, told)
    with monkeypatch.context() as patched:
        patched.setattr(fabric_module, "judge", _never)
        mine = [pair for pair in pairs if pair[0] == new]
        told |= dict(_traced(clos, *pair, 50_000) for pair in mine)
        _hear(fabric, told, 1.0)
        fabric.step(1.0)
    assert _shown(fabric) == _shown(_anew(clos, told))
    path, trace = _traced(clos, *pairs[-1], 50_000)
    lie = {path: Trace(**{**_fields(trace), "hops": [trace.hops[0], "6.6.6.6", *trace.hops[2:]]})}
    _hear(fabric, lie, 2.0)
    fabric.step(2.0)
    assert _shown(fabric) == _shown(_anew(clos, told | lie))
    assert "6.6.6.6" not in {link.b for links in _shown(fabric).values() for link in links}


def _hosts(pair: tuple[FakeNic, FakeNic]) -> set[str]:
    return {nic.host for nic in pair}


def _never(*_: object) -> None:
    raise AssertionError("everything is voted on")


def test_a_path_that_is_to_be_traced_is_asked_about_once_for_as_long_as_it_is_silent() -> None:
    clos, store, asked = FakeClos(), TraceStore(), []
    store.know(clos.addresses)
    src, dst = next(iter(clos.pairs()))
    path, trace = _traced(clos, src, dst, 50_000)
    report = TraceReport(host=src.host, traces=[trace])

    def is_ordered(path: PathName) -> bool:
        asked.append(path)
        return True

    store.hear(report, ["nic0"], 0.0)
    for now_s in (100.0, 101.0, 102.0):
        store.expire(now_s, is_ordered)
    assert asked == [path]
    store.hear(report, ["nic0"], 103.0)
    store.expire(200.0, is_ordered)
    assert asked == [path, path]
    store.expire(703.5, lambda _path: True)
    assert len(store) == 0
