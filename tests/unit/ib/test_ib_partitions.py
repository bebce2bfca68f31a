"""Which partitions ports are in, and which can talk."""

import dataclasses

import pytest
from subnets import Node, Port, two_leaves

from cwdp.ib.asking import Asker
from cwdp.ib.partitions import MOST_BLOCKS, read_keys
from cwdp.ib.snapshot import snapshot
from cwdp.ib.sweep import sweep
from cwdp.ib.tables import read_tables
from cwdp.shared.ib.subnet import Subnet, pack, unpack


def taken(nodes: dict[str, Node]) -> Subnet:
    asker = Asker(Port(nodes["h0"]))
    fabric = sweep(asker)
    return snapshot(fabric, read_tables(asker, fabric), read_keys(asker, fabric))


def row(subnet: Subnet, name: str) -> int:
    return int((subnet.ports["node"] == subnet.names.index(name)).argmax())


@pytest.mark.parametrize(
    ("ours", "theirs", "may_talk"),
    [
        ((0xFFFF,), (0xFFFF,), True),
        ((0xFFFF,), (0x7FFF,), True),
        ((0x7FFF,), (0x7FFF,), False),
        ((0xFFFF, 0x8001), (0x0001,), True),
        ((0x8001,), (0x8002,), False),
        ((0x8001, 0x0001), (0x0001,), True),
        ((), (0xFFFF,), None),
    ],
)
def test_two_talk_in_a_partition_of_which_one_is_a_full_member(
    ours: tuple[int, ...], theirs: tuple[int, ...], may_talk: bool | None
) -> None:
    nodes = two_leaves()
    nodes["h1"].keys, nodes["h3"].keys = ours, theirs
    subnet = taken(nodes)
    assert subnet.keys_of(row(subnet, "h1")) == ours
    assert subnet.may_talk(row(subnet, "h1"), row(subnet, "h3")) is may_talk
    assert subnet.may_talk(row(subnet, "h3"), row(subnet, "h1")) is may_talk


@pytest.mark.parametrize("count", [31, 32, 33, 64, 100, 32 * MOST_BLOCKS + 5])
def test_tables_of_many_blocks_are_read(count: int) -> None:
    nodes = two_leaves()
    nodes["h2"].keys = tuple(0x8000 | number for number in range(1, count + 1))
    subnet = taken(nodes)
    assert subnet.keys_of(row(subnet, "h2")) == nodes["h2"].keys[: 32 * MOST_BLOCKS]
    assert subnet.keys_of(row(subnet, "h3")) == (0xFFFF,)


def test_switches_have_none_and_what_is_packed_comes_back() -> None:
    subnet = taken(two_leaves())
    assert subnet.keys_of(row(subnet, "l0")) == ()
    again = unpack(pack(subnet))
    assert again.keys.tolist() == subnet.keys.tolist()


@pytest.mark.parametrize("port", [-1, 10_000])
def test_keys_of_ports_that_are_not_there_are_refused(port: int) -> None:
    subnet = taken(two_leaves())
    keys = subnet.keys.copy()
    keys["port"][0 if port < 0 else -1] = port
    with pytest.raises(ValueError, match="contradicts"):
        unpack(pack(dataclasses.replace(subnet, keys=keys)))
