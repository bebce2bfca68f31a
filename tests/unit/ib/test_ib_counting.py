"""Counters that are read over and over: which attributes are asked for, and of which ports."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from subnets import Node, Port, two_leaves

from cwdp.ib.asking import Asker
from cwdp.ib.counters import PORT_COUNTERS, PORT_COUNTERS_EXTENDED
from cwdp.ib.counting import MOST_MISSED, QUIET_S, Counting
from cwdp.ib.sweep import End

NAMES = ("h0", "h1", "h2", "h3")


class Counted:
    """Ports of hosts that are counted."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.port = Port(nodes["h0"])
        self.wide: dict[int, bool] = {}
        ends = [End(nodes[name].guid, 1) for name in NAMES]
        self.counting = Counting(Asker(self.port), ends, self.wide)
        self.counting.reach(np.array([nodes[name].lid for name in NAMES]))
        self.lids = {nodes[name].lid: name for name in NAMES}

    def read(self, now_s: float) -> tuple[Counter[tuple[str, int]], list[bool]]:
        """What is asked for, by host and attribute; and whether each tells."""
        self.port.asked.clear()
        known = self.counting.read(now_s).known.any(axis=1).tolist()
        return Counter((self.lids[int(one.to)], one.attribute) for one in self.port.asked), known


def test_of_those_that_count_all_with_64_bits_one_attribute_is_enough() -> None:
    nodes = two_leaves()
    nodes["h2"].is_wide = True
    asked, known = Counted(nodes).read(0.0)
    both = {(name, of) for name in NAMES for of in (PORT_COUNTERS, PORT_COUNTERS_EXTENDED)}
    assert asked == Counter(both - {("h2", PORT_COUNTERS)})
    assert all(known)


def test_who_does_not_tell_is_left_alone_and_asked_again() -> None:
    nodes = two_leaves()
    counted = Counted(nodes)
    nodes["h3"].is_silent = True
    for second in range(MOST_MISSED):
        asked, known = counted.read(float(second))
        assert (("h3", PORT_COUNTERS) in asked, known) == (True, [True, True, True, False])
    asked, known = counted.read(MOST_MISSED)
    assert ({name for name, _ in asked}, known) == ({"h0", "h1", "h2"}, [True, True, True, False])
    nodes["h3"].is_silent = False
    asked, known = counted.read(MOST_MISSED + QUIET_S)
    assert (("h3", PORT_COUNTERS) in asked, all(known)) == (True, True)


def test_what_nodes_can_count_is_asked_once() -> None:
    counted = Counted(two_leaves())
    before = len(counted.port.asked)
    counted.counting.reach(np.array(list(counted.lids)))
    assert (before, len(counted.port.asked), len(counted.wide)) == (4, 4, 4)
