"""What the planner keeps from one step to the next is what it would find anew."""

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cwdp.shared.bus.records import EGRESS, INGRESS, QP_ROW, packed_address
from manager.fabric.routes import DirectedLink, PackedPaths, PathName, Routes
from manager.jobs.flows import Flow
from manager.placement.flows import QpName
from manager.planner import candidates as candidates_module
from manager.planner.candidates import Candidates
from manager.planner.flows import FlowReader, sending
from manager.planner.located import Located
from manager.planner.steering_state import SteeringState
from manager.queue_pairs.counters import NicReport, QueuePairStore

ADDRESSES = ("10.0.0.1", "10.0.0.2", "fd00::3")
PORTS = (50_000, 50_001, 50_002)
LINKS = tuple(DirectedLink(f"s{i}", f"s{i + 1}") for i in range(6))

_qp = st.tuples(
    st.sampled_from(ADDRESSES),
    st.integers(1, 4),
    st.sampled_from([EGRESS, INGRESS]),
    st.sampled_from([0, *PORTS]),
)
_report = st.tuples(
    st.sampled_from(["h0", "h1"]), st.lists(_qp, max_size=5, unique_by=lambda qp: qp[:3]), st.integers(0, 2)
)
_owners = st.dictionaries(st.sampled_from(ADDRESSES), st.sampled_from(["h0/eth0", "h1/eth0"]))


@given(st.lists(st.tuples(st.lists(_report, max_size=3), _owners, st.booleans()), max_size=8))
def test_flows_read_again_are_those_read_for_the_first_time(
    steps: list[tuple[list[tuple[str, list[tuple[str, int, int, int]], int]], dict[str, str], bool]],
) -> None:
    store, reader, total = QueuePairStore(), FlowReader(), 0
    for step, (reports, owners, forgets) in enumerate(steps):
        now_s = 100.0 + step
        for host, qps, unlisted in reports:
            rows = np.zeros(len(qps), QP_ROW)
            for row, (addr, qpn, direction, sport) in zip(rows, qps, strict=True):
                total += 1000
                row["addr"] = np.frombuffer(packed_address(addr), np.uint8)
                row["qpn"], row["direction"], row["sport"], row["bytes"] = qpn, direction, sport, total
            local_ns = round(now_s * 1e9)
            store.hear([NicReport((host, "eth0"), rows, unlisted=unlisted)], local_ns=local_ns, now_s=now_s)
        if forgets:
            store.expire(now_s, {"h1"})
        kept, fresh = reader.read(store.tables, owners, now_s), sending(store.tables, owners, now_s)
        assert (kept.names, kept.dst) == (fresh.names, fresh.dst)
        assert kept.dst == [owners.get(name.dst_addr, name.dst_addr) for name in kept.names]
        assert [kept.ends.nics[i] for i in kept.ends.number[0]] == [name.src for name in kept.names]
        assert [kept.ends.nics[i] for i in kept.ends.number[1]] == kept.dst
        for column in ("sport", "rate_bps", "small"):
            np.testing.assert_array_equal(getattr(kept, column), getattr(fresh, column))


def test_a_queue_pair_that_is_silent_between_bursts_of_its_job_is_read_on() -> None:
    """And no other of the same NIC that has been silent for as long."""
    store, nics = QueuePairStore(), {"10.0.0.1": "h1/eth0"}
    for second in range(60):
        rows = np.zeros(3 if second == 0 else 1, QP_ROW)
        rows["addr"], rows["sport"] = np.frombuffer(packed_address("10.0.0.1"), np.uint8), PORTS[0]
        rows["qpn"], rows["bytes"] = np.arange(1, len(rows) + 1), 1_000 * second
        store.hear([NicReport(("h0", "eth0"), rows)], local_ns=second * 10**9, now_s=float(second))
    pauses_s = {Flow("h0/eth0", "h1/eth0", 2): 80.0, Flow("h0/eth0", "h1/eth0", 3): 30.0}
    kept = FlowReader().read(store.tables, nics, 59.0, pauses_s)
    assert [name.qpn for name in kept.names] == [1, 2]
    assert np.isnan(kept.rate_bps[1])
    assert [name.qpn for name in sending(store.tables, nics, 59.0).names] == [1]


_names = st.lists(
    st.builds(QpName, st.just("h0"), st.just("eth0"), st.sampled_from(ADDRESSES), st.integers(1, 4)),
    unique=True,
)
_paths = st.dictionaries(
    st.builds(PathName, st.just("h0/eth0"), st.sampled_from(ADDRESSES), st.sampled_from(PORTS)),
    st.lists(st.integers(0, len(LINKS) - 1), min_size=1, max_size=4, unique=True).map(tuple),
)


@given(st.lists(_paths, min_size=1, max_size=2), st.data())
def test_places_that_are_kept_are_those_found_for_the_first_time(
    fabrics: list[dict[PathName, tuple[int, ...]]], data: st.DataObject
) -> None:
    """Whatever of ports, routes and queue pairs changes in between."""
    known = [Candidates(Routes(version, LINKS, paths)) for version, paths in enumerate(fabrics)]
    steering, located = SteeringState(), Located()
    for step in range(5):
        names, candidates = data.draw(_names), data.draw(st.sampled_from(known))
        if data.draw(st.booleans()):
            steering.release("h0")
        ports = np.array(
            data.draw(st.lists(st.sampled_from(PORTS), min_size=len(names), max_size=len(names))), np.int64
        )
        rows = steering.know(names, float(step))
        kept = located.find(candidates, steering, names, rows, ports)
        fresh = Located().find(candidates, steering, names, rows, ports)
        for column in ("pair", "path", "has_choice"):
            np.testing.assert_array_equal(getattr(kept, column), getattr(fresh, column))
        ways = dict(zip([(name.src, name.dst_addr) for name in names], kept.way.tolist(), strict=True))
        assert len(set(ways.values())) == len(ways)
        assert [ways[name.src, name.dst_addr] for name in names] == kept.way.tolist()
        for name, port, crossed in zip(names, ports.tolist(), kept.crossed.tolist(), strict=True):
            links = candidates.routes.paths.get(PathName(name.src, name.dst_addr, port), ())
            assert [link for link in crossed if link >= 0] == list(links)


_ports = st.sets(st.sampled_from(PORTS))
_crossed = st.lists(st.integers(0, len(LINKS) - 1), min_size=1, max_size=4, unique=True)
_changes = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(ADDRESSES), _ports, max_size=2),
        st.dictionaries(st.tuples(st.sampled_from(ADDRESSES), st.sampled_from(PORTS)), _crossed, max_size=2),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
)


@given(_changes, st.integers(0, 3), st.data())
def test_what_is_taken_over_from_other_routes_is_what_would_be_found_anew(
    changes: list[tuple[dict[str, set[int]], dict[tuple[str, int], list[int]], int]],
    most: int,
    data: st.DataObject,
) -> None:
    """Pairs come, go and get other ports, paths lead over other links, and links become known."""
    with patch.object(candidates_module, "MOST_CARRIED", most):
        pairs: dict[tuple[str, str], dict[int, int]] = {}
        crossed = np.full((len(ADDRESSES) * len(PORTS), 4), -1, np.int32)
        crossed[:, 0] = np.arange(len(crossed)) % len(LINKS)
        steering, located, candidates = SteeringState(), Located(), Candidates(Routes())
        links = LINKS
        for version, (ported, led, more) in enumerate(changes):
            for address, ports in ported.items():
                place = ADDRESSES.index(address) * len(PORTS)
                rows = {port: place + PORTS.index(port) for port in sorted(ports)}
                pairs = {**pairs, ("h0/eth0", address): rows}
                if not rows:
                    del pairs["h0/eth0", address]
            crossed = crossed.copy()
            for (address, port), over in led.items():
                row = ADDRESSES.index(address) * len(PORTS) + PORTS.index(port)
                crossed[row] = [*over, *[-1] * (4 - len(over))]
            links = (*links, *(DirectedLink(f"t{len(links)}", f"u{i}") for i in range(more)))
            routes = Routes(version + 1, links, PackedPaths(pairs, crossed))
            candidates, fresh = Candidates(routes, candidates), Candidates(routes)
            names = data.draw(_names)
            sports = data.draw(st.lists(st.sampled_from(PORTS), min_size=len(names), max_size=len(names)))
            rows_of, port = steering.know(names, float(version)), np.array(sports, np.int64)
            mine = located.find(candidates, steering, names, rows_of, port)
            anew = Located().find(fresh, steering, names, rows_of, port)
            for column in ("path", "has_choice"):
                np.testing.assert_array_equal(getattr(mine, column), getattr(anew, column))
            assert [[link for link in row if link >= 0] for row in mine.crossed.tolist()] == [
                [link for link in row if link >= 0] for row in anew.crossed.tolist()
            ]
            for i, name in enumerate(names):
                choices = candidates.of(name.src, name.dst_addr)
                assert choices == fresh.of(name.src, name.dst_addr)
                assert mine.choices[i] == (-1 if choices is None else choices.number)
                assert (mine.pair[i] >= 0) == (choices is not None)
                for k, path in enumerate(() if choices is None else choices.paths):
                    over = candidates.path_set.links[:, mine.pair[i], k].tolist()
                    assert over[: len(path)] == list(path)
                    assert set(over[len(path) :]) <= {len(links)}
