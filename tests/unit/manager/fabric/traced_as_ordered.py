"""Hosts that trace what they are ordered to, until nothing more is."""

from collections.abc import Collection, Mapping

from fabric_fakes import FakeClos

from cwdp.shared.bus.messages import TraceReport
from manager.fabric.fabric import Fabric
from manager.fabric.orders import InUse, Orders
from manager.fabric.path_counts import PathCounts
from manager.fabric.routes import Pair


def by_host(in_use: InUse) -> dict[str, InUse]:
    return {
        host: {pair: ports for pair, ports in in_use.items() if pair[0].partition("/")[0] == host}
        for host in {src.partition("/")[0] for src, _ in in_use}
    }


def converge(
    clos: FakeClos,
    orders: Orders,
    fabric: Fabric,
    in_use: InUse,
    enough: Mapping[Pair, int] | None = None,
    *,
    far: Collection[Pair] = (),
) -> int:
    """Order and trace until nothing more is ordered; how many rounds that took."""
    fabric.know(clos.addresses)
    nic = {nic.name: nic for nic in clos.all_nics}
    for turn in range(200):
        counts = PathCounts(fabric.routes)
        changed = orders.update(
            by_host(in_use), counts, fabric.store.pairs, owner={}, enough=enough or {}, far=far
        )
        if not changed and turn:
            return turn
        for host, ordered in orders.by_host.items():
            traces = [
                clos.trace(nic[f"{host}/{order.nic}"], nic[clos.addresses[order.dst_addr]], sport)
                for order in ordered
                for sport in order.sports
            ]
            fabric.hear(TraceReport(host=host, traces=traces), ["nic0", "nic1"], float(turn))
        fabric.step(float(turn))
    raise AssertionError("never content")
