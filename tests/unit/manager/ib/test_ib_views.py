"""InfiniBand in the views and commands of the manager, alone and beside Ethernet."""

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fabric_fakes import FakeClos
from ib_worlds import clos, cut, port

from cwdp.cli import main
from cwdp.cli.client import ManagerClient
from cwdp.shared.ib.counters import NAMES, Growth
from cwdp.shared.ib.reports import IbGrowth, pack_growth, subnet_pieces
from cwdp.shared.ib.subnet import Subnet
from manager.fabric.discovery import Discovery
from manager.fabric.fabric import Fabric
from manager.fabric.model import Model
from manager.fabric.wiring import miswired
from manager.hosts.members import Members
from manager.ib.subnets import SILENT_S, Subnets
from manager.links.loads import LinkLoads
from manager.overrides.steering import SteerTable
from manager.queue_pairs.traffic import Traffic
from manager.view import fabric_views, ib_views
from manager.view.link_table import of_now


def known(subnet: Subnet) -> Subnets:
    subnets = Subnets()
    for piece in subnet_pieces("h0", 1, subnet):
        subnets.hear_subnet(piece, 0.0)
    return subnets


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the manager answers, by path."""
    answers: dict[str, Any] = {}
    monkeypatch.setattr(ManagerClient, "get", lambda _client, path, _query=None: answers[path])
    return answers


def run(*arguments: str) -> str:
    return (
        CliRunner().invoke(main, [*arguments, "--manager", "unix:///nowhere"], env={"COLUMNS": "200"}).output
    )


def test_ways_are_shown_with_primary_and_backup(answers: dict[str, Any]) -> None:
    pairs = list(ib_views.pairs(known(clos()), "h1", "h9/mlx5_0"))
    answers["/v1/path"] = {"pairs": pairs}
    (pair,) = pairs
    assert (pair["primary"], pair["backup"], pair["no_route"]) == (100, 101, [])
    assert pair["dst_addr"] == "fe80::300a"
    text = run("path", "h1", "h9")
    assert "h1/mlx5_0 > h9/mlx5_0 (fe80::300a): 4 ways, by destination LID\n" in text
    assert "100  primary  l0 > s0 > l2  h1/mlx5_0 > l0:5 > s0:3 > l2:2" in text
    assert "101   backup  l0 > s1 > l2" in text


@pytest.mark.parametrize(
    ("subnet", "dst", "said"),
    [
        (clos(lmc=0), "h9", "1 way, by destination LID; LMC is 0: one way"),
        (clos(), "h2", "both are at one switch"),
        (cut(clos(), port(clos(), "l0", 5)), "h9", "3 ways, by destination LID; none to 100"),
        (cut(clos(), port(clos(), "h9 mlx5_0", 1)), "h9", "no way: tables lead there by no links"),
    ],
)
def test_what_is_missing_is_said(answers: dict[str, Any], subnet: Subnet, dst: str, said: str) -> None:
    answers["/v1/path"] = {"pairs": list(ib_views.pairs(known(subnet), "h1", dst))}
    assert said in run("path", "h1", dst)


def test_all_nics_of_two_hosts_and_none_of_others() -> None:
    names = {"h1 mlx5_0": "h0 mlx5_1", "h9 mlx5_0": "h8 mlx5_1"}
    subnets = known(clos(names=names))
    assert {(pair["src"], pair["dst"]) for pair in ib_views.pairs(subnets, "h0", "h8")} == {
        (f"h0/mlx5_{a}", f"h8/mlx5_{b}") for a in (0, 1) for b in (0, 1)
    }
    assert list(ib_views.pairs(subnets, "h0/mlx5_0", "h0/mlx5_0")) == []
    assert list(ib_views.pairs(subnets, "nobody", "h8")) == []


def test_the_fabric_is_shown_with_its_subnets(answers: dict[str, Any]) -> None:
    subnets, members = known(clos(lmc=0)), Members()
    discovery = Discovery(members, Traffic(members), SteerTable(None))
    discovery.known = subnets.links(0.0)
    answers["/v1/fabric"] = fabric_views.fabric(discovery) | ib_views.subnets(subnets)
    text = run("fabric")
    assert "16 NICs, 8 switches (4 of tier 1, 4 of tier 2), 16 links between them" in text
    assert "8 switches, 16 NICs, 32 cables, LMC 0, subnet manager l0, read by h0" in text
    assert "LMC is 0" in text
    subnets.step(SILENT_S + 1.0)
    answers["/v1/fabric"] |= ib_views.subnets(subnets)
    assert "read by h0, which tells nothing now" in run("fabric")


def test_both_kinds_of_fabric_are_in_one_model() -> None:
    ethernet, fabric = FakeClos(leaves=4), Fabric()
    ethernet.tell(fabric, ports=24)
    subnet = clos(names={f"h{i} mlx5_0": f"h{i + 1} mlx5_0" for i in range(16)})
    links = known(cut(subnet, port(subnet, "l1", 7))).links(0.0)
    model = Model(fabric.routes, links.nics.union(ethernet.addresses.values()), links.links)
    tiers = {node.name: node.tier for node in model.nodes}
    assert len(tiers) == 8 + 8
    assert (tiers["l0"], tiers["s3"], tiers["10.254.1.1"], tiers["10.254.3.1"]) == (1, 2, 1, 2)
    assert model.seats["h1/nic0"] == ("10.254.1.1",)
    assert model.seats["h1/mlx5_0"] == ("l0",)
    suspects = miswired(model, {}, links.leaves.__contains__)
    assert [(one.what, one.expected) for one in suspects] == [("l1", "s2")]


def test_links_are_shown_with_what_they_carry() -> None:
    subnet = clos()
    subnets = known(subnet)
    per_s = np.zeros((len(subnet.ports), len(NAMES)))
    per_s[port(subnet, "h3 mlx5_0", 1), NAMES.index("sent_words")] = 2.5e9
    data = pack_growth(Growth(per_s, np.zeros(per_s.shape, bool)))
    subnets.hear_growth(IbGrowth(host="h0", number=1, ports=len(per_s), data=data), 1.0)
    table = ib_views.with_infiniband(of_now(LinkLoads(), []), subnets)
    row = table.row_of("h3/mlx5_0", "l0")
    assert (row["load_bps"], row["capacity_bps"], row["share"], row["state"]) == (80e9, 100e9, 0.8, "ok")
    assert table.row_of("l0", "h3/mlx5_0")["load_bps"] == 0
    assert len(table.names) == 64
