"""The table of queue pairs under pressure: the least recently seen makes room, and every packet is steered all the same."""

import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import roce
from machine import TC_ACT_UNSPEC, XDP_PASS, Machine, machine
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Reason
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.steering.steering import Steer

pytestmark = pytest.mark.kernel

BUCKETS = 2
PLACES = BUCKETS * abi.QP_WAYS
PORTS = range(60_000, 60_000 + 12 * PLACES)
FREE, BUSY = 0, 1


@pytest.fixture(scope="module")
def small() -> Iterator[Machine]:
    with machine(Settings(qp_buckets=BUCKETS)) as made:
        yield made


@pytest.fixture
def table(small: Machine) -> Machine:
    """A dataplane with room for PLACES queue pairs."""
    small.reset()
    return small


def packet_to(qpn: int) -> bytes:
    return bytes(roce.data(dqpn=qpn))


def held(table: Machine, direction: Direction = Direction.INGRESS) -> NDArray[np.void]:
    """The places that are taken, dtype `abi.QP`."""
    records = table.maps.qps[direction]
    taken: NDArray[np.void] = records[records["tag"] != FREE]
    return taken


def totals(runs: list[dict[Reason, int]]) -> dict[Reason, int]:
    """All that was counted."""
    summed: dict[Reason, int] = {}
    for counted in runs:
        for reason, n in counted.items():
            summed[reason] = summed.get(reason, 0) + n
    return summed


def test_more_queue_pairs_than_places(table: Machine) -> None:
    """Each packet leaves with the port of its queue pair, whether that has a place or not."""
    qpns = dict(zip(range(1, len(PORTS) + 1), PORTS, strict=True))
    packets = {qpn: roce.data(dqpn=qpn) for qpn in qpns}
    for qpn, port in qpns.items():
        table.steer(packets[qpn], Steer(port))
    order = random.Random(7).choices(list(qpns), k=5 * len(qpns))
    runs = []
    for qpn in order:
        run = table.leave(packets[qpn])
        assert run.verdict == TC_ACT_UNSPEC
        assert run.packet == roce.from_port(bytes(packets[qpn]), 4, qpns[qpn])
        runs.append(run.counted)
    counted = totals(runs)
    assert counted[Reason.STEER_REWRITTEN] == len(order)
    assert counted[Reason.QP_ADDED] == len(held(table, Direction.EGRESS)) == PLACES
    assert counted[Reason.QP_EVICTED] > 0
    assert Reason.QP_UNTRACKED not in counted


def test_each_has_one_place(table: Machine) -> None:
    order = random.Random(7).choices(range(1, 3 * PLACES), k=40 * PLACES)
    for qpn in order:
        assert table.ingress(packet_to(qpn)).verdict == XDP_PASS
    records = held(table)
    assert len(np.unique(records["key"]["qpn"])) == len(np.unique(records["tag"])) == PLACES


def test_the_least_recently_seen_makes_room(table: Machine) -> None:
    """Of the first bucket of the newcomer."""
    new = 10**6
    for qpn in range(1, 4 * PLACES):
        table.ingress(packet_to(qpn))
    records = table.maps.qps[Direction.INGRESS]
    records["tick"] = 0
    records["last_seen_ns"] = 10**9 + np.random.default_rng(7).permutation(PLACES)
    before = records.copy()
    assert table.ingress(packet_to(new)).counted == {Reason.QP_EVICTED: 1}
    place = int(np.flatnonzero(records["key"]["qpn"] == new)[0])
    bucket = slice(place // abi.QP_WAYS * abi.QP_WAYS, (place // abi.QP_WAYS + 1) * abi.QP_WAYS)
    assert before["last_seen_ns"][place] == before["last_seen_ns"][bucket].min()
    others = np.arange(PLACES) != place
    assert (records[others] == before[others]).all()


def test_a_newcomer_starts_at_zero(table: Machine) -> None:
    """Nothing is left of whom it took the place of."""
    records = table.maps.qps[Direction.INGRESS]
    records[:] = np.frombuffer(bytes([0x7F]) * records.nbytes, dtype=abi.QP)
    records["last_seen_ns"] = 0
    packet = roce.data(dqpn=5)
    assert table.ingress(packet).counted == {Reason.QP_EVICTED: 1}
    record = records[records["key"]["qpn"] == 5][0]
    assert (int(record["packets"]), int(record["bytes"])) == (1, packet["IP"].len)
    for name in (
        "acks",
        "ce_marks",
        "cnps",
        "psn_retransmitted",
        "psn_gaps",
        "psn_reordered",
        "flags",
        "departure_ns",
    ):
        assert int(record[name]) == 0, name
    assert not record["naks"].any()
    assert not record["icrc_known"].any()


def test_places_that_are_all_being_filled_in(table: Machine) -> None:
    """The packet goes without a place, but not without its path."""
    packet = roce.data()
    table.steer(packet, Steer(PORTS[0]))
    table.maps.qps[Direction.EGRESS]["tag"] = BUSY
    for _ in range(2):
        run = table.leave(packet)
        assert run.packet == roce.steered(packet, PORTS[0])
        assert run.counted == {Reason.QP_UNTRACKED: 1, Reason.STEER_REWRITTEN: 1}
    assert (table.maps.qps[Direction.EGRESS]["tag"] == BUSY).all()


def test_two_places_for_one(table: Machine) -> None:
    """Two CPUs may have made them: one is used, the other fades."""
    packet = roce.data()
    table.ingress(packet)
    records = table.maps.qps[Direction.INGRESS]
    first = int(np.flatnonzero(records["tag"])[0])
    twin = first ^ 1
    records[twin] = records[first]
    for _ in range(3):
        assert table.ingress(packet).counted == {}
    assert sorted(int(records["packets"][n]) for n in (first, twin)) == [1, 4]


def test_crowding_from_several_cpus(table: Machine) -> None:
    """No place stays in between, and each names the queue pair whose hash it bears."""

    def crowd(seed: int) -> None:
        for qpn in random.Random(seed).choices(range(1, 4 * PLACES), k=3000):
            table.repeat(Direction.INGRESS, packets[qpn], 1)

    packets = {qpn: packet_to(qpn) for qpn in range(1, 4 * PLACES)}
    threads = [threading.Thread(target=crowd, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = held(table).copy()
    assert len(records) == PLACES
    assert BUSY not in records["tag"]
    tags: dict[int, set[int]] = {}
    for record in records:
        tags.setdefault(int(record["key"]["qpn"]), set()).add(int(record["tag"]))
    assert all(len(of_one) == 1 for of_one in tags.values())
