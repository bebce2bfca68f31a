"""How what a NIC sends is parted among its queue pairs."""

from collections.abc import Callable

import numpy as np
import pytest
from asynchronous import asynchronous

from cwdp.agent.verbs.orders import VerbsQp
from cwdp.agent.verbs.shares import Lately, SentShares, parts
from cwdp.agent.verbs.sources import BoundCounts, Sent
from cwdp.errors import RdmaError
from cwdp.rdma.netlink import BoundCounter
from cwdp.rdma.shimwire import RTS
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import QP_ROW

Told = list[list[tuple[int, int, int]]]
PORTS = {"nic0": ("mlx5_0", 1)}


def qp(number: int, *, state: int = RTS, nic: str = "nic0") -> VerbsQp:
    return VerbsQp(
        number, 40, "mlx5_0", number, state, nic, "10.0.1.1", 900 + number, 50_001, True, "mlx5dv", 0
    )


class Nic:
    """A NIC that sends, its queue pairs, and the counts of some."""

    def __init__(self, *queue_pairs: VerbsQp) -> None:
        self.queue_pairs = list(queue_pairs)
        self.sent: Sent | None = Sent(0, 0)
        self.counts: dict[int, int] = {}
        self._ns = 0
        self._shares = SentShares(lambda *_: self.sent, lambda: self._ns)

    def told(self) -> Told:
        """Far ends' QPNs, packets and bytes, by part of the report."""
        self._ns += 500_000_000
        made = self._shares.reports(
            self.queue_pairs, ["nic0"], PORTS, lambda one: self.counts.get(one.number)
        )
        rows = [rows_of(part.rows, QP_ROW) if part.rows else np.zeros(0, QP_ROW) for part in made]
        return [[(int(r["qpn"]), int(r["packets"]), int(r["bytes"])) for r in each] for each in rows]

    def send(self, packets: int, octets: int, **counts: int) -> None:
        assert self.sent is not None
        self.sent = Sent(self.sent.packets + packets, self.sent.bytes + octets)
        for name, more in counts.items():
            number = int(name.removeprefix("qp"))
            self.counts[number] = self.counts.get(number, 0) + more


def test_what_nobody_counts_is_shared_equally() -> None:
    nic = Nic(qp(1), qp(2), qp(3, state=2), qp(4, nic="tc0"))
    assert nic.told() == [[]]
    nic.send(100, 100_000)
    assert nic.told() == [[(901, 50, 50_000), (902, 50, 50_000)]]
    assert nic.told() == []
    assert nic.told() == [[]]
    del nic.queue_pairs[1]
    nic.send(100, 100_000)
    assert nic.told() == [[(901, 150, 150_000)]]
    nic.sent = Sent(0, 0)
    assert nic.told() == []
    nic.sent = None
    assert nic.told() in ([], [[]])


def test_counted_queue_pairs_have_what_they_sent() -> None:
    nic = Nic(qp(1), qp(2))
    nic.counts = {1: 5_000_000, 2: 7}
    nic.told()
    nic.send(1_000, 1_060_000, qp1=900_000, qp2=100_000)
    ((one, two),) = nic.told()
    assert one == (901, 900, 954_000)
    assert two == (902, 100, 106_000)


def test_counts_that_come_late_do_not_make_others_of_it() -> None:
    """Counts come once a second, reports twice."""
    nic = Nic(qp(1), qp(2))
    nic.counts = {1: 0, 2: 0}
    nic.told()
    for turn in range(40):
        nic.send(1_000, 1_060_000, qp1=1_900_000 * (turn % 2), qp2=100_000 * (turn % 2))
        ((one, two),) = nic.told()
    assert one[2] / (one[2] + two[2]) == pytest.approx(0.95, abs=0.03)


def test_what_counts_do_not_account_for_is_of_those_that_nobody_counts() -> None:
    nic = Nic(qp(1), qp(2), qp(3))
    nic.counts = {1: 0}
    nic.told()
    nic.send(1_000, 1_000_000, qp1=400_000)
    ((one, two, three),) = nic.told()
    assert (one[2], two[2], three[2]) == (400_000, 300_000, 300_000)


def test_headers_alone_are_of_nobody_in_particular() -> None:
    nic = Nic(qp(1), qp(2))
    nic.counts = {1: 0, 2: 0}
    nic.told()
    nic.send(1_000, 1_060_000, qp1=1_000_000)
    assert nic.told() == [[(901, 1_000, 1_060_000), (902, 0, 0)]]


def test_no_program_makes_a_nic_send_more_than_it_does() -> None:
    nic = Nic(qp(1), qp(2))
    nic.counts = {1: 0, 2: 0}
    nic.told()
    nic.send(1_000, 1_000_000, qp1=2**64 - 1, qp2=1_000_000)
    ((one, two),) = nic.told()
    assert one[2] + two[2] <= 1_000_000
    nic.counts[1] = 0
    nic.send(1_000, 1_000_000, qp2=1_000_000)
    assert nic.told()


@pytest.mark.parametrize("own", [{1: 0.0}, {1: 0.0, 2: 0.0}, {1: 3.0, 2: 0.0}, {1: 1e30, 2: 1.0, 3: 0.0}])
def test_parts_add_up_to_one(own: dict[int, float]) -> None:
    for total in (Lately(1, 1), Lately(1_000, 10), Lately(10, 10_000_000)):
        assert sum(parts(total, own).values()) == pytest.approx(1)


def bound(read: Callable[[], list[BoundCounter]]) -> BoundCounts:
    return BoundCounts(read)


@asynchronous
async def test_a_bound_counter_is_shared_by_those_that_have_it() -> None:
    counts = bound(
        lambda: [
            BoundCounter("mlx5_0", (7,), {"rdma_tx_bytes": 500, "out_of_buffer": 3}),
            BoundCounter("mlx5_0", (8, 9), {"rdma_tx_bytes": 500}),
            BoundCounter("mlx5_1", (7,), {"rx_write_requests": 5}),
            BoundCounter("mlx5_1", (), {"rdma_tx_bytes": 5}),
        ]
    )
    assert counts.of("mlx5_0", 7) is None
    await counts.look()
    assert [counts.of("mlx5_0", lqpn) for lqpn in (7, 8, 9, 10)] == [500, 250, 250, None]
    assert counts.of("mlx5_1", 7) is None


@asynchronous
async def test_where_the_kernel_has_no_bound_counters_nothing_is_counted() -> None:
    def none() -> list[BoundCounter]:
        raise RdmaError("the kernel refused")

    counts = bound(none)
    await counts.look()
    assert counts.of("mlx5_0", 7) is None
