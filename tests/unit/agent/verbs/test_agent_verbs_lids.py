"""Queue pairs over InfiniBand in the process for the verbs shim: what programs are given by LIDs, and what is told of them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from verbs_world import ORDER, World

from cwdp.agent.verbs.orders import VerbsSource
from cwdp.agent.verbs.routes import is_sane
from cwdp.agent.verbs.sources import lid_sources
from cwdp.rdma.ib.lid import LID_MAX, dlids, gid_lid, lid_gid
from cwdp.rdma.shimwire import QpPath
from cwdp.shared.addresses import PortLids
from cwdp.shared.bus.messages import Spread
from tools.shim.client import lids_of

THERE = "fe80::2:c903:0:20"
IB = VerbsSource("ib_0", "ib_0", 1, 0, "fe80::2:c903:0:10", 16, 2)


def spread(*dlids: int, lid: int = 32, lmc: int = 2, shares: tuple[float, ...] = ()) -> Spread:
    return Spread(
        nic="ib_0", dst_addr=THERE, sports=list(dlids), lids=PortLids(lid, lmc), shares=list(shares)
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def follow(world: World, *spreads: Spread, source: VerbsSource = IB) -> None:
    sources = [*ORDER.sources, source]
    world.host.follow(msgspec.structs.replace(ORDER, sources=sources, spreads=[*ORDER.spreads, *spreads]))


def told(world: World) -> dict[tuple[bytes, bytes], tuple[int, list[int], list[float]]]:
    """LMC, DLIDs and shares of the routes between LIDs in the table that programs are given."""
    shim = world.shim()
    shim.read()
    return lids_of(shim.tables[-1])


def test_programs_are_given_the_lids_of_a_spread(world: World) -> None:
    follow(world, spread(35, 32, 33, shares=(0.5, 1.0, 0.5)))
    assert told(world) == {(lid_gid(16), lid_gid(32)): (2, [32, 33, 35], [0.5, 0.25, 0.25])}


def test_only_paths_that_both_ends_have_are_given(world: World) -> None:
    follow(world, spread(32, 33, 34, 35), source=msgspec.structs.replace(IB, lmc=1))
    assert told(world)[lid_gid(16), lid_gid(32)][1] == [32, 33]


def test_a_port_without_a_lid_is_given_none(world: World) -> None:
    follow(world, spread(32, 33), source=msgspec.structs.replace(IB, lid=0, lmc=0))
    assert told(world) == {}


def test_a_dead_path_stays_among_them_as_both_ends_must_have_the_same(world: World) -> None:
    follow(world, spread(32, 33))
    world.down(33, nic="ib_0")
    assert told(world)[lid_gid(16), lid_gid(32)][1] == [32, 33]


@pytest.mark.parametrize(
    "wrong",
    [
        spread(31),
        spread(36),
        spread(32, 0xC001),
        spread(LID_MAX, lid=LID_MAX, lmc=1),
        Spread(nic="nic0", dst_addr="10.0.9.9", sports=[33]),
        Spread(nic="nic0", dst_addr="10.0.9.9", sports=[50_000, 0xBFFF]),
    ],
)
def test_what_is_no_path_is_refused_and_counted(world: World, wrong: Spread) -> None:
    assert not is_sane(wrong)
    follow(world, wrong, spread(33))
    assert told(world).keys() == {(lid_gid(16), lid_gid(32))}
    assert world.count("spreads_refused") == 1


def test_queue_pairs_are_told_with_port_far_end_and_dlid(world: World) -> None:
    follow(world, spread(32, 33))
    shim = world.shim()
    shim.connect_lid_qp(7, 16, 35)
    shim.connect_lid_qp(8, 16, 99)
    world.run()
    assert [(qp.lqpn, qp.nic, qp.dst_addr, qp.sport, qp.actuator) for qp in world.queue_pairs()] == [
        (7, "ib_0", THERE, 35, "apm"),
        (8, "ib_0", "::63", 99, "apm"),
    ]
    assert shim.take_orders() == []
    follow(world, spread(97, 98, 99, 96, lid=96))
    world.run()
    assert {qp.lqpn: qp.dst_addr for qp in world.queue_pairs()} == {7: "::23", 8: THERE}


@pytest.mark.parametrize(("lid", "dlid", "bits"), [(0xC000, 1, 0), (1, 1 << 16, 0), (1, 1, 128)])
def test_lids_that_cannot_be_are_no_message(lid: int, dlid: int, bits: int) -> None:
    path = QpPath("ib_0", 1, 3, 1, 0, 2, 0, bytes(16), 0, 0, 0, lid, dlid, bits)
    assert not path.has_lids


def test_ports_of_infiniband_are_found_with_their_lids(tmp_path: Path) -> None:
    def port(device: str, number: int, files: dict[str, str]) -> None:
        where = tmp_path / device / "ports" / str(number)
        (where / "gids").mkdir(parents=True)
        (where / "gids/0").write_text(f"fe80:0000:0000:0000:0002:c903:0000:00{number:02d}\n")
        for name, text in files.items():
            (where / name).write_text(f"{text}\n")

    port("mlx5_0", 1, {"link_layer": "InfiniBand", "lid": "0x10", "lid_mask_count": "2"})
    port("mlx5_0", 2, {"link_layer": "InfiniBand", "lid": "0x20", "lid_mask_count": "1"})
    port("mlx5_0", 3, {"link_layer": "InfiniBand", "lid": "0x0", "lid_mask_count": "0"})
    port("mlx5_1", 1, {"link_layer": "Ethernet", "lid": "0x5", "lid_mask_count": "0"})
    port("mlx5_2", 1, {"link_layer": "InfiniBand", "lid": "0xc000", "lid_mask_count": "0"})
    port("mlx5_3", 1, {"link_layer": "InfiniBand", "lid": "x", "lid_mask_count": "0"})
    port("mlx5_4", 1, {"link_layer": "InfiniBand"})
    assert lid_sources(tmp_path) == [
        VerbsSource("mlx5_0", "mlx5_0", 1, 0, "fe80::2:c903:0:1", 16, 2),
        VerbsSource("mlx5_0.2", "mlx5_0", 2, 0, "fe80::2:c903:0:2", 32, 1),
    ]


@pytest.mark.parametrize("lid", [1, 16, LID_MAX])
def test_a_lid_has_a_form_that_no_gid_has(lid: int) -> None:
    assert gid_lid(lid_gid(lid)) == lid


@pytest.mark.parametrize(
    "gid", [bytes(16), lid_gid(0xC000), bytes([0xFE, 0x80, *[0] * 13, 1]), b"\0" * 13 + b"\1\0\1"]
)
def test_a_gid_stands_for_no_lid(gid: bytes) -> None:
    assert gid_lid(gid) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "paths"),
    [
        ((16, 2), (32, 2), [32, 33, 34, 35]),
        ((16, 0), (32, 2), [32]),
        ((16, 2), (33, 0), [33]),
        ((8, 3), (32, 1), [32, 33]),
    ],
)
def test_two_ports_have_the_paths_that_both_have(
    ours: tuple[int, int], theirs: tuple[int, int], paths: list[int]
) -> None:
    assert dlids(ours, theirs) == paths
