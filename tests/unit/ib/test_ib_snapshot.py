"""A subnet as arrays, and what comes back of what is packed."""

import dataclasses
import zlib

import numpy as np
import pytest
from subnets import Port, two_leaves

from cwdp.ib.asking import Asker
from cwdp.ib.snapshot import snapshot
from cwdp.ib.sweep import sweep
from cwdp.ib.tables import read_tables
from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import NO_PEER, Subnet, pack, unpack


def taken(**shape: int) -> Subnet:
    asker = Asker(Port(two_leaves(**shape)["h0"]))
    fabric = sweep(asker)
    return snapshot(fabric, read_tables(asker, fabric))


def test_ports_are_joined_both_ways_and_named() -> None:
    subnet = taken(spines=3, hosts=4)
    assert (len(subnet.guids), len(subnet.switches), len(subnet.links)) == (13, 5, 2 * 3 + 2 * 4)
    names = [{Names(subnet).ports[a], Names(subnet).ports[b]} for a, b in subnet.links.tolist()]
    assert {"h0/1", "l0:1"} in names
    assert {"l1:7", "s2:2"} in names
    managed = subnet.ports[subnet.ports["number"] == 0]
    assert len(managed) == 5
    assert (managed["peer"] == NO_PEER).all()


def test_tables_are_in_the_order_of_the_switches() -> None:
    subnet = taken()
    h2 = subnet.ports[subnet.ports["lid"] == 20][0]
    assert subnet.names[h2["node"]] == "h2"
    by_switch = {subnet.names[row]: subnet.tables[i, 20:22].tolist() for i, row in enumerate(subnet.switches)}
    assert by_switch == {"s0": [2, 2], "s1": [2, 2], "l0": [3, 4], "l1": [1, 1]}


def test_what_is_packed_comes_back() -> None:
    subnet = dataclasses.replace(taken(), silent=(3,), sm=(0x1000, "ftree"))
    again = unpack(pack(subnet))
    assert (again.names, again.silent, again.sm) == (subnet.names, (3,), (0x1000, "ftree"))
    for name in ("guids", "kinds", "ports", "tables"):
        assert np.array_equal(getattr(again, name), getattr(subnet, name)), name


def test_an_empty_subnet_comes_back() -> None:
    subnet = taken()
    empty = dataclasses.replace(
        subnet,
        guids=subnet.guids[:0],
        names=(),
        kinds=subnet.kinds[:0],
        ports=subnet.ports[:0],
        tables=subnet.tables[:0],
        port_guids=subnet.port_guids[:0],
    )
    assert len(unpack(pack(empty)).ports) == 0


@pytest.mark.parametrize(
    "data", [b"", b"x" * 100, zlib.compress(b"\x80"), zlib.compress(b"\x93\x01\x02\x03")]
)
def test_what_is_no_subnet_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="subnet"):
        unpack(data)


@pytest.mark.parametrize(
    ("field", "value"), [("node", 99), ("node", -2), ("peer", 0), ("peer", 1_000), ("lmc", 8)]
)
def test_what_contradicts_itself_is_refused(field: str, value: int) -> None:
    subnet = taken()
    ports = subnet.ports.copy()
    ports[field][-1] = value
    with pytest.raises(ValueError, match="contradicts"):
        unpack(pack(dataclasses.replace(subnet, ports=ports)))
