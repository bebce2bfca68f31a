"""Hosts of a swarm say what agents would say of the same."""

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray

from cwdp.agent.probing.windows import ROWS_A_MESSAGE, WindowReports
from cwdp.shared.bus.messages import ProbeEdge, SteerQp
from cwdp.shared.bus.packing import rows_of
from cwdp.shared.bus.records import EGRESS, QP_ROW, WINDOW_ROW, packed_address
from cwdp.shared.bus.windows import MEASURED, PATH
from tools.swarm.fabric import Size, SwarmFabric, nic_address
from tools.swarm.measured import windows_of
from tools.swarm.probes import HostProbes
from tools.swarm.told import ToldWindows
from tools.swarm.traffic import PACKET_BYTES, Traffic

SIZE = Size(nics=64)
NICS = [f"nic{number}" for number in range(8)]


class _Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def _probes(fabric: SwarmFabric, pairs_per_s: float, ports: int) -> HostProbes:
    """Of the host 1: from each NIC to two others, not in the order in which agents tell paths."""
    edges = [
        ProbeEdge(
            src=f"h1/nic{rail}",
            dst=f"h{peer}/nic{rail}",
            src_addr=nic_address(8 + rail),
            dst_addr=nic_address(8 * peer + rail),
            sports=list(range(0xC000 + ports, 0xC000, -1)),
            reply_sports=list(range(0xD000, 0xD000 + ports)),
            pairs_per_s=pairs_per_s * ports,
        )
        for rail in reversed(range(8))
        for peer in (5, 2)
    ]
    return HostProbes(fabric, edges, (1, 1))


def _whole(probes: HostProbes, rows: NDArray[np.void]) -> NDArray[np.void]:
    """PLACED_ROWs as WINDOW_ROWs."""
    whole = np.zeros(len(rows), WINDOW_ROW)
    for name in PATH:
        whole[name] = probes.told[name][rows["path"]]
    for name in MEASURED:
        whole[name] = rows[name]
    return whole


@pytest.mark.parametrize(("pairs_per_s", "ports"), [(20.0, 8), (1.3, 8), (40.0, 256)])
def test_windows_are_told_as_agents_tell_them(pairs_per_s: float, ports: int) -> None:
    """Of quick paths and of slow ones, of which a table has some; in one message and in several."""
    fabric, clock = SwarmFabric(SIZE), _Clock()
    probes = _probes(fabric, pairs_per_s, ports)
    told, agent = ToldWindows("h1", NICS, probes.told, clock), WindowReports("h1", clock)
    cable = fabric.leaf_cable(3, 2)
    messages, longest = [], 0
    for turn in range(12):
        clock.now_s += 0.25
        fabric.loss[cable.links] = 0.5 if turn % 4 == 1 else 0.0
        fabric.queue_ns[8 : 8 + 3] = 30_000.0 * (turn % 3 == 0)
        (rows,) = windows_of([probes], 100 + 5 * turn, 105 + 5 * turn, np.zeros(1), sums=False)
        whole = _whole(probes, rows)
        by_nic = [(nic, whole[whole["nic"] == place]) for place, nic in enumerate(NICS)]
        theirs = [structs.replace(each, boot_id="b") for each in agent.of(by_nic)]
        ours = list(told.of(rows, "b"))
        assert ours == theirs
        messages += ours
        longest = max(longest, len(ours))
    assert {bool(message.paths) for message in messages} == {True, False}
    assert (longest > 1) == (len(probes) * 5 > ROWS_A_MESSAGE)


def test_rows_of_windows_come_path_by_path_and_those_of_a_quiet_path_as_one() -> None:
    fabric = SwarmFabric(SIZE)
    probes = _probes(fabric, 20.0, 8)
    fabric.queue_ns[8] = 30_000.0
    (rows,) = windows_of([probes], 100, 105, np.zeros(1), sums=False)
    assert (np.diff(rows["path"].astype(int)) >= 0).all()
    queued = (probes.there == 8).any(axis=1) | (probes.back == 8).any(axis=1)
    assert 0 < queued.sum() < len(probes)
    for path, is_queued in enumerate(queued):
        mine = rows[rows["path"] == path]
        assert mine["sent"].sum() == 20
        assert mine["window"].tolist() == (list(range(100, 105)) if is_queued else [100])
        assert mine["further"].tolist() == ([0] * 5 if is_queued else [4])


def test_in_a_large_fleet_those_of_a_queued_path_come_as_one_too() -> None:
    """Its least and mean delays are those of all of them; a path that loses is told window by window."""
    fabric = SwarmFabric(SIZE)
    probes = _probes(fabric, 20.0, 8)
    fabric.queue_ns[8] = 30_000.0
    fabric.loss[9] = 0.5
    lossy = probes.paths.loss(fabric) > 0
    assert 0 < np.count_nonzero(lossy) < len(probes)
    (rows,) = windows_of([probes], 100, 105, np.zeros(1), sums=True)
    for path, loses in enumerate(lossy):
        assert rows["further"][rows["path"] == path].tolist() == ([0] * 5 if loses else [4])
    fabric.loss[:] = 0.0
    there = (probes.there == 8).any(axis=1)
    for what, of_windows in (("mean", np.mean), ("min", np.min)):
        alone, together = (
            np.concatenate([_delays(probes, turn, what, there, sums=sums) for turn in range(300)])
            for sums in (False, True)
        )
        expected = of_windows(alone.reshape(-1, 5), axis=1)
        assert abs(expected.mean() - together.mean()) < 700
        assert abs(expected.std() - together.std()) < 700


def _delays(
    probes: HostProbes, turn: int, what: str, of: NDArray[np.bool_], *, sums: bool
) -> NDArray[np.int64]:
    """What some paths' probes took in five windows, path by path."""
    (rows,) = windows_of([probes], 5 * turn, 5 * turn + 5, np.zeros(1), sums=sums)
    return rows[f"fwd_{what}_ns"][of[rows["path"]]].astype(np.int64)


def _told(traffic: Traffic, nic: int) -> NDArray[np.void]:
    return rows_of(next(traffic.told(range(nic, nic + 1))), QP_ROW)


def test_queue_pairs_are_told_as_counted_and_by_the_ports_to_which_they_were_steered() -> None:
    fabric = SwarmFabric(SIZE)
    traffic = Traffic(fabric, 1)
    traffic.count(1.0)
    _told(traffic, 9)
    mine = np.flatnonzero(traffic.src == 9)
    first = _told(traffic, 9)[0]
    to = nic_address(int(traffic.dst[mine[0]]))
    order = SteerQp(nic="nic1", dst_addr=to, qpn=int(first["qpn"]), sport=0xFFFE)
    assert traffic.steer(1, [order]) == 1
    assert traffic.steer(1, [order]) == 0
    traffic.count(3.0)
    rows = _told(traffic, 9)
    sent, came = (rows[rows["direction"] == way] for way in (EGRESS, 1 - EGRESS))
    theirs = np.flatnonzero(traffic.dst == 9)
    for some, numbers, far in ((sent, mine, traffic.dst), (came, theirs, traffic.src)):
        assert some["sport"].tolist() == traffic.sport[numbers].tolist()
        assert some["bytes"].tolist() == traffic.bytes[numbers].astype(int).tolist()
        assert (some["packets"] == some["bytes"] // PACKET_BYTES).all()
        assert [row.tobytes() for row in some["addr"]] == [
            packed_address(nic_address(nic)) for nic in far[numbers].tolist()
        ]
    assert sent["sport"][0] == 0xFFFE
    peer = _told(traffic, int(traffic.dst[mine[0]]))
    assert 0xFFFE in peer["sport"][peer["direction"] != EGRESS]
