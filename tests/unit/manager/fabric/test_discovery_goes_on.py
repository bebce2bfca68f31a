"""Discovery works out anew only what rests on something that has changed."""

from collections.abc import Collection

import pytest
from fabric_fakes import FakeClos
from msgspec.structs import replace
from test_fabric_ports import Fleet

from manager.fabric import discovery as discovery_module
from manager.fabric.fabric import Fabric
from manager.fabric.orders import InUse, Orders
from manager.fabric.path_counts import PathCounts
from manager.fabric.routes import Pair


def test_suspicions_hold_while_links_and_addresses_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    clos = FakeClos(leaves=3, spines=2, hosts_per_leaf=2)
    fleet = Fleet(clos)
    fleet.run(3.0)
    discovery, worked_out = fleet.state.discovery, []
    before = discovery.miswired()

    def count(*of: object) -> list[object]:
        worked_out.append(of)
        return []

    monkeypatch.setattr(discovery_module, "miswired", count)
    path = next(iter(fleet.state.fabric.routes.paths))
    version = fleet.state.fabric.routes.version
    discovery.fabric.store.forget([path])
    discovery.learn(fleet.now_s + 5.0)
    assert fleet.state.fabric.routes.version > version
    assert discovery.miswired() is before
    assert not worked_out
    hello = fleet.state.members.hosts["h1"].hello
    moved = replace(hello, nics=[replace(hello.nics[0], ipv4="10.9.9.9"), *hello.nics[1:]])
    fleet.state.hear_hello(moved, fleet.now_s + 5.0)
    discovery.miswired()
    assert worked_out


def test_only_hosts_are_looked_at_of_which_something_is_different() -> None:
    clos, orders, fabric = FakeClos(spines=4, hosts_per_leaf=2), Orders(), Fabric()
    clos.tell(fabric, ports=24)
    counts = PathCounts(fabric.routes)
    in_use: dict[str, InUse] = {}
    for src, dst in clos.pairs():
        in_use[src.host] = {**in_use.get(src.host, {}), (src.name, dst.address): [60_000]}

    class Traced(dict[Pair, Collection[int]]):
        def get(self, pair: Pair, _default: object = None) -> None:  # type: ignore[override]
            looked.add(pair[0].partition("/")[0])

    looked: set[str] = set()

    def update(of: dict[str, InUse], anew: Collection[Pair]) -> bool:
        looked.clear()
        return orders.update(of, counts, Traced(), owner={}, anew=anew)

    assert update(in_use, ())
    assert looked == in_use.keys()
    assert not update(in_use, ())
    told = dict(orders.by_host)
    assert not update(in_use, ())
    assert not looked
    assert not update(in_use, [next(iter(in_use["h2"]))])
    assert looked == {"h2"}
    pair = next(iter(in_use["h1"]))
    assert update({**in_use, "h1": {**in_use["h1"], pair: [60_000, 60_001]}}, ())
    assert looked == {"h1"}
    assert update({host: pairs for host, pairs in in_use.items() if host not in ("h1", "h2")}, ())
    assert {path.src.partition("/")[0] for path in orders.withdrawn} == {"h1", "h2"}
    assert orders.by_host == {host: told[host] for host in told if host not in ("h1", "h2")}
