"""Orders from what has changed are those from everything."""

import random

import pytest
from fabric_fakes import FakeClos

from cwdp.shared.bus.messages import TraceReport
from manager.fabric import orders as orders_module
from manager.fabric.fabric import Fabric
from manager.fabric.orders import InUse, Orders
from manager.fabric.path_counts import PathCounts
from manager.fabric.routes import Pair


class _Use:
    """What hosts use, which changes at random; what is as it was is the same object."""

    def __init__(self, clos: FakeClos, draw: random.Random) -> None:
        self._draw = draw
        self._pairs = [(src.name, dst.address) for src, dst in clos.pairs()]
        self.by_host: dict[str, dict[Pair, dict[int, None]]] = {}
        self.enough: dict[Pair, int] = {}
        self.far: set[Pair] = set()
        for _ in range(40):
            self.change()

    def change(self) -> None:
        """A pair begins, ends, uses other ports or needs other paths; or a host uses nothing any more."""
        draw = self._draw
        pair = draw.choice(self._pairs)
        host = pair[0].partition("/")[0]
        mine = dict(self.by_host.get(host, {}))
        what = draw.choice(["begins", "begins", "begins", "first", "ends", "needs", "a host leaves"])
        if what == "a host leaves":
            mine = {} if draw.random() < 0.2 else mine
        elif what == "ends":
            mine.pop(pair, None)
        elif what == "needs":
            self.enough[pair] = draw.randint(1, 6)
            if draw.random() < 0.3:
                self.enough.pop(pair)
            (self.far.add if draw.random() < 0.3 else self.far.discard)(pair)
        else:
            ports = dict.fromkeys(draw.sample(range(50_000, 50_020), draw.randint(0, 3)))
            mine = {pair: ports, **mine} if what == "first" else {**mine, pair: ports}
        self.by_host[host] = mine


def _trace(clos: FakeClos, fabric: Fabric, orders: Orders, draw: random.Random, now_s: float) -> None:
    """Hosts trace some of what they are ordered to."""
    nics = {nic.name: nic for nic in clos.all_nics}
    for host, ordered in orders.by_host.items():
        traces = [
            clos.trace(nics[f"{host}/{order.nic}"], nics[clos.addresses[order.dst_addr]], sport)
            for order in ordered
            for sport in order.sports
            if draw.random() < 0.7
        ]
        fabric.hear(TraceReport(host=host, traces=traces), ["nic0", "nic1"], now_s)


@pytest.mark.parametrize("room", [10_000, 60])
@pytest.mark.parametrize("seed", range(6))
def test_orders_from_what_has_changed_are_those_from_everything(
    seed: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders_module, "MOST_PORTS_A_HOST", room)
    monkeypatch.setattr(orders_module, "MOST_PORTS", 7 * room)
    draw = random.Random(seed)
    clos, fabric = FakeClos(leaves=3, spines=5, hosts_per_leaf=3, nics=2), Fabric()
    fabric.know(clos.addresses)
    use, further, whole = _Use(clos, draw), Orders(), Orders()
    counts = PathCounts(fabric.routes)
    for turn in range(80):
        for _ in range(draw.choice([0, 0, 1, 5])):
            use.change()
        if draw.random() < 0.1:
            told = draw.choice(sorted(further.by_host))
            for orders in (further, whole):
                orders.take_up(told, further.by_host.get(told, [])[:3])
        in_use: dict[str, InUse] = dict(use.by_host)
        anew = {*counts.recounted, *fabric.store.ported}
        fabric.store.ported = set()
        is_calm = draw.random() < 0.8
        for orders, of in ((further, anew if turn else None), (whole, None)):
            orders.update(
                in_use,
                counts,
                fabric.store.pairs,
                owner=clos.addresses,
                enough=use.enough,
                far=use.far,
                is_calm=is_calm,
                anew=of,
            )
        assert further.by_host == whole.by_host
        assert (sorted(further.withdrawn), further.waits) == (sorted(whole.withdrawn), whole.waits)
        fabric.store.forget(further.withdrawn)
        _trace(clos, fabric, further, draw, float(turn))
        fabric.step(float(turn))
        counts = PathCounts(fabric.routes, counts)
    assert further.by_host
