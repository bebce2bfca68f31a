"""Which links the flows of a job cross, from the rows of the tables."""

from typing import Any

import numpy as np

from cwdp.shared.bus.records import EGRESS, INGRESS, QP_ROW, packed_address
from manager.causes.crossed import links_of
from manager.jobs.flows import Flow
from manager.links.meter import Crossings

NICS = {packed_address(f"10.0.0.{i}"): f"h{i}/nic0" for i in (1, 2, 3)}


def table(*rows: tuple[str, int, int]) -> Any:
    found = np.zeros(len(rows), QP_ROW)
    for row, (address, qpn, direction) in zip(found, rows, strict=True):
        row["addr"] = np.frombuffer(packed_address(address), np.uint8)
        row["qpn"], row["direction"] = qpn, direction
    return found


def crossings(*pairs: tuple[int, int], unknown: tuple[int, ...] = ()) -> Crossings:
    row, link = (np.array(each, np.intp) for each in zip(*pairs, strict=True))
    located = ~np.isin(np.arange(row.max() + 1), unknown)
    nobody = np.zeros(0, np.intp), ()
    return Crossings(b"", row, link, np.ones(len(row)), located, *nobody, *nobody)


def test_each_flow_has_the_links_of_its_row() -> None:
    known = {("h1", "nic0"): crossings((2, 5), (0, 1), (2, 6), (0, 3), (1, 9))}
    tables = {
        ("h1", "nic0"): table(("10.0.0.2", 7, EGRESS), ("10.0.0.2", 9, INGRESS), ("10.0.0.3", 8, EGRESS))
    }
    a, b = Flow("h1/nic0", "h2/nic0", 7), Flow("h1/nic0", "h3/nic0", 8)
    far, gone = Flow("h2/nic0", "h1/nic0", 7), Flow("h1/nic0", "h2/nic0", 99)
    assert links_of([a, b, far, gone], known, tables, NICS) == {a: {1, 3}, b: {5, 6}}


def test_rows_that_the_table_no_longer_has_are_left_out() -> None:
    known = {("h1", "nic0"): crossings((0, 1), (4, 2))}
    tables = {("h1", "nic0"): table(("10.0.0.2", 7, EGRESS))}
    flow = Flow("h1/nic0", "h2/nic0", 7)
    assert links_of([flow], known, tables, NICS) == {flow: {1}}


def test_a_flow_of_which_only_the_paths_are_known_that_it_may_take_crosses_none() -> None:
    known = {("h1", "nic0"): crossings((0, 1), (0, 2), (1, 3), unknown=(0,))}
    tables = {("h1", "nic0"): table(("10.0.0.2", 7, EGRESS), ("10.0.0.3", 8, EGRESS))}
    a, b = Flow("h1/nic0", "h2/nic0", 7), Flow("h1/nic0", "h3/nic0", 8)
    assert links_of([a, b], known, tables, NICS) == {b: {3}}
