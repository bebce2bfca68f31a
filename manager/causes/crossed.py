"""Over which links the flows of jobs go. Pure."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from cwdp.shared.bus.records import EGRESS
from manager.jobs.flows import Flow, NicName, Rows, nic_name
from manager.links.meter import Crossings


def links_of(
    flows: Iterable[Flow],
    known: Mapping[NicName, Crossings],
    tables: Mapping[NicName, Rows],
    nics: Mapping[bytes, str],
) -> dict[Flow, frozenset[int]]:
    """The numbers of the links that each flow crosses, as far as its path is known.

    Args:
        flows: which.
        known: what the rows of each NIC's table cross.
        tables: the queue pairs of each NIC, dtype QP_ROW, shape (n,).
        nics: the NIC that has each packed address.
    """
    wanted: dict[NicName, set[Flow]] = {}
    for flow in flows:
        wanted.setdefault(nic_name(flow.src), set()).add(flow)
    found: dict[Flow, frozenset[int]] = {}
    for name, mine in wanted.items():
        if name in known and name in tables:
            found |= _of_nic(mine, known[name], tables[name], nics)
    return found


def _of_nic(
    wanted: Collection[Flow], crossings: Crossings, table: Rows, nics: Mapping[bytes, str]
) -> dict[Flow, frozenset[int]]:
    src = next(iter(wanted)).src
    is_known = crossings.located[crossings.row]
    row, link = crossings.row[is_known], crossings.link[is_known]
    order = np.argsort(row, kind="stable")
    numbers, first = np.unique(row[order], return_index=True)
    parts = np.split(link[order], first[1:])
    rows = table[numbers[numbers < len(table)]]
    found = {}
    for row, links in zip(rows, parts, strict=False):
        flow = Flow(src, nics.get(row["addr"].tobytes(), ""), int(row["qpn"]))
        if row["direction"] == EGRESS and flow in wanted:
            found[flow] = frozenset(links.tolist())
    return found
