"""Subnets as readers tell them: several readers, several subnets, what is lost or makes no sense."""

from dataclasses import replace

import numpy as np
import pytest
from ib_worlds import clos, cut, port

from cwdp.shared.ib.counters import NAMES, Growth
from cwdp.shared.ib.reports import (
    IbGrowth,
    IbSubnet,
    IbTables,
    pack_growth,
    pack_tables,
    subnet_pieces,
    unpack_growth,
    unpack_tables,
)
from cwdp.shared.ib.subnet import CHANNEL_ADAPTER, Subnet
from manager.fabric.model import Model
from manager.fabric.routes import Routes as PathRoutes
from manager.ib.links import link_rates
from manager.ib.subnets import FORGET_S, SILENT_S, Subnets


def tell(subnets: Subnets, subnet: Subnet, *, host: str = "h0", number: int = 1, now_s: float = 0.0) -> None:
    for piece in subnet_pieces(host, number, subnet):
        subnets.hear_subnet(piece, now_s)


def other(subnet: Subnet) -> Subnet:
    """The same with other GUIDs."""
    return replace(subnet, guids=subnet.guids + np.uint64(0x100000))


def test_what_was_told_is_known() -> None:
    subnets, subnet = Subnets(), clos()
    tell(subnets, subnet)
    (now,) = subnets.now
    assert (now.reader, now.is_fresh, len(now.links), subnets.results["ok"]) == ("h0", True, 64, 1)
    assert now.leaves == {"l0", "l1", "l2", "l3"}
    model = Model(PathRoutes(), subnets.links(0.0).nics, subnets.links(0.0).links)
    assert [(node.name, node.tier) for node in model.nodes[:5]] == [
        *((f"l{i}", 1) for i in range(4)),
        ("s0", 2),
    ]
    assert model.seats["h5/mlx5_0"] == ("l1",)
    assert len(model.cables) == 16


def test_two_readers_of_one_subnet_make_one() -> None:
    subnets, subnet = Subnets(), clos()
    tell(subnets, subnet, host="h0")
    tell(subnets, cut(subnet, port(subnet, "l0", 5)), host="h9", now_s=0.1)
    assert [one.reader for one in subnets.now] == ["h0"]


def test_a_reader_that_falls_silent_is_replace() -> None:
    subnets, subnet = Subnets(), clos()
    tell(subnets, subnet, host="h0")
    tell(subnets, subnet, host="h9")
    later = SILENT_S + 1.0
    subnets.hear_growth(IbGrowth(host="h9"), later)
    assert [(one.reader, one.is_fresh) for one in subnets.now] == [("h9", True)]
    subnets.hear_growth(IbGrowth(host="h9", trouble="no device"), later)
    subnets.hear_growth(IbGrowth(host="h0"), later)
    assert [(one.reader, one.is_fresh) for one in subnets.now] == [("h0", True)]
    subnets.step(later + SILENT_S)
    assert [one.is_fresh for one in subnets.now] == [False]
    subnets.step(later + FORGET_S)
    assert list(subnets.now) == []


def test_rails_that_are_not_connected_are_side_by_side() -> None:
    subnets, subnet = Subnets(), clos()
    tell(subnets, subnet, host="h0")
    tell(subnets, other(subnet), host="h1")
    assert [one.reader for one in subnets.now] == ["h0", "h1"]


def two_rails() -> tuple[Subnet, Subnet]:
    """Fabrics with the same LIDs and names of switches, in each of which every adapter has one of its two ports."""
    first = clos()
    ports, guids = first.ports.copy(), first.guids.copy()
    is_host = first.kinds == CHANNEL_ADAPTER
    ports["number"][is_host[ports["node"]]] = 2
    guids[~is_host] += np.uint64(0x800)
    return first, replace(first, guids=guids, ports=ports, port_guids=first.port_guids + np.uint64(0x100000))


@pytest.mark.parametrize("turn", [1, -1])
def test_an_adapter_with_ports_in_two_subnets_does_not_make_them_one(turn: int) -> None:
    subnets = Subnets()
    for number, subnet in enumerate(two_rails()[::turn]):
        tell(subnets, subnet, host=f"h{number}")
    first, second = subnets.now
    assert [one.subnet.guids.tolist() for one in (first, second)] == [
        one.guids.tolist() for one in two_rails()
    ]
    assert first.names.nics.keys() == {f"h{i}/mlx5_0" for i in range(16)}
    assert second.names.nics.keys() == {f"h{i}/mlx5_0.2" for i in range(16)}
    assert first.leaves == {"l0", "l1", "l2", "l3"}
    assert second.leaves == {f"l{i}-{0x2800 + i:016x}" for i in range(4)}
    links = subnets.links(0.0)
    assert len(set(links.links)) == 2 * 64
    assert len(links.nics) == 2 * 16


def test_a_reader_that_is_cut_off_tells_of_no_subnet_of_its_own() -> None:
    subnets, subnet = Subnets(), clos()
    tell(subnets, subnet, host="h0")
    host = subnet.names.index("h9 mlx5_0")
    alone = replace(
        subnet, guids=subnet.guids[[host]], names=("h9 mlx5_0",), kinds=subnet.kinds[[host]],
        ports=cut(subnet, port(subnet, "h9 mlx5_0", 1)).ports[subnet.ports["node"] == host],
        tables=subnet.tables[:0], port_guids=np.zeros(0, np.uint64),
    )  # fmt: skip
    alone.ports["node"] = 0
    tell(subnets, alone, host="h9")
    assert [one.reader for one in subnets.now] == ["h0"]


def test_changed_tables_are_taken_over_and_nothing_else_is_another() -> None:
    subnets, subnet = Subnets(), clos()
    tell(subnets, subnet)
    version, tables = subnets.version, subnet.tables.copy()
    tables[5, 100] = 7
    subnets.hear_tables(IbTables(host="h0", after=1, number=2, data=pack_tables(tables, [5])), 1.0)
    (now,) = subnets.now
    assert (now.subnet.tables[5, 100], subnets.version) == (7, version + 1)
    assert np.array_equal(now.subnet.ports, subnet.ports)
    subnets.hear_tables(IbTables(host="h0", after=1, number=3, data=pack_tables(tables, [5])), 1.0)
    assert subnets.results["of_another_reading"] == 1


def test_a_subnet_in_pieces_counts_once_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cwdp.shared.ib.reports.PIECE_BYTES", 200)
    pieces, subnets = subnet_pieces("h0", 1, clos()), Subnets()
    assert len(pieces) > 2
    for piece in pieces[:-1]:
        subnets.hear_subnet(piece, 0.0)
    assert list(subnets.now) == []
    for piece in [pieces[0], pieces[-1]]:
        subnets.hear_subnet(piece, 0.0)
    assert len(subnets.now) == 1


@pytest.mark.parametrize("seed", range(5))
def test_growth_comes_back(seed: int) -> None:
    draw, ports = np.random.default_rng(seed), 300
    grows = draw.random((ports, len(NAMES))) < 0.05
    per_s = np.where(grows, draw.random((ports, len(NAMES))) * 1e9, 0.0)
    per_s[draw.random(per_s.shape) < 0.01] = np.nan
    growth = Growth(per_s, draw.random(per_s.shape) < 0.01)
    again = unpack_growth(pack_growth(growth), ports)
    assert np.allclose(again.per_s, growth.per_s, rtol=1e-6, equal_nan=True)
    assert np.array_equal(again.stuck, growth.stuck)


def test_loads_are_those_of_the_ports_that_send() -> None:
    subnets, subnet = Subnets(), clos()
    tell(subnets, subnet)
    per_s = np.zeros((len(subnet.ports), len(NAMES)))
    per_s[port(subnet, "l0", 5), NAMES.index("sent_words")] = 1e9
    data = pack_growth(Growth(per_s, per_s > np.inf))
    subnets.hear_growth(IbGrowth(host="h0", number=1, ports=len(per_s), data=data), 1.0)
    rates = link_rates(subnets.now[0])
    loads = {link: load for link, load in zip(rates.links, rates.load_bps.tolist(), strict=True) if load}
    assert loads == {("l0", "s0"): 32e9}
    assert set(rates.capacity_bps.tolist()) == {100e9}


WRONG = [
    IbSubnet(host="h0", number=2, data=b"no subnet"),
    IbTables(host="h0", after=1, number=2, data=b"x"),
    IbTables(host="h0", after=1, number=2, data=pack_tables(np.zeros((200, 3), np.uint8), [199])),
    IbTables(host="h0", after=1, number=2, data=pack_tables(np.zeros((2, 3), np.uint8), [1])),
    IbGrowth(host="h0", number=1, ports=8, data=b"x"),
    IbGrowth(host="h0", number=1, first=8_000, ports=8_000, data=b"x"),
    IbGrowth(
        host="h0", number=1, ports=1, data=pack_growth(Growth(np.ones((9, 13)), np.ones((9, 13), bool)))
    ),
]


@pytest.mark.parametrize("message", WRONG, ids=range(len(WRONG)))
def test_what_makes_no_sense_changes_nothing(message: IbSubnet | IbTables | IbGrowth) -> None:
    subnets, subnet = Subnets(), clos()
    tell(subnets, subnet)
    (before,) = subnets.now
    hear = {kind: take for _, kind, take in subnets.hears()}
    hear[type(message)](message, 1.0)
    assert subnets.now[0].subnet is before.subnet
    assert subnets.results["not_sane"] == 1


def test_rows_of_tables_come_back() -> None:
    before = np.zeros((5, 64), np.uint8)
    after = before.copy()
    after[[1, 4]] = 9
    assert np.array_equal(unpack_tables(pack_tables(after, [1, 4]), before), after)
