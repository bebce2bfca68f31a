"""Queue pairs of a moment as rows, live from the tables, of the past as history kept them. No I/O."""

from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice

from cwdp.shared.bus.records import EGRESS
from manager.moment.moment import Moment
from manager.placement.flows import QpName
from manager.state import FleetState
from manager.view.json_values import Json
from manager.view.qp_views import Rows

SLOWEST_OF = 1_024
"""Of the fastest queue pairs, to see which are slowest."""


class QpRows:
    """Rows of queue pairs that send.

    Args:
        moment: when.
        state: what the manager knows now, which rows of now are read from.
        now_s: its monotonic clock.
    """

    def __init__(self, moment: Moment, state: FleetState, now_s: float) -> None:
        self._moment = moment
        self._live = Rows(state, now_s) if moment.is_live else None

    def row(self, i: int) -> Json | None:
        """A queue pair by its place; None where it is gone meanwhile."""
        talkers = self._moment.talkers
        row = _kept(talkers.kept[i]) if self._live is None else self._live.of(talkers.names[i], EGRESS)
        if row is None:
            return None
        return row | {"job": talkers.jobs.of_flow[i], "spread_ns": self._above_least(i, row["owd"])}

    def of(self, name: QpName) -> Json | None:
        """A queue pair by its name, now also one that does not send; None where it is not known."""
        i = self._moment.talkers.number.get(name)
        if i is not None:
            return self.row(i)
        row = None if self._live is None else self._live.of(name, EGRESS)
        job = self._moment.talkers.jobs.by_host.get(name.host)
        return None if row is None else row | {"job": job, "spread_ns": None}

    def rows(self, places: Iterable[int]) -> list[Json]:
        """Those that are still there."""
        return [row for row in map(self.row, places) if row is not None]

    def slowest(self, places: Iterable[int], most: int) -> list[Json]:
        """The longest one-way delay above the least first, of the fastest of some; those without stamps last."""
        spreads = {i: self.spread_ns(i) for i in islice(places, SLOWEST_OF)}
        order = sorted(spreads, key=lambda i: -1 if spreads[i] is None else spreads[i] or 0, reverse=True)
        return self.rows(order[:most])

    def spread_ns(self, i: int) -> int | None:
        """How much longer than the least its slowest data packets take; None where none were stamped."""
        if self._live is None:
            return self._above_least(i, self._moment.talkers.kept[i]["owd"])
        delay = self._live.delay(self._moment.talkers.names[i])
        return None if delay is None else self._above_least(i, asdict(delay))

    def _above_least(self, i: int, owd: Json | None) -> int | None:
        """Above the least that probes took between its leaves, or its own packets."""
        if owd is None:
            return None
        leaf_of, pairs = self._moment.parts.leaf_of, self._moment.leaf_pairs
        talkers = self._moment.talkers
        ends = leaf_of.get(talkers.names[i].src, ""), leaf_of.get(talkers.dst[i], "")
        least_ns = None if pairs is None else pairs.least_ns.get(ends)
        own_ns, top_ns = int(owd["min_ns"]), int(owd["p99_ns"])
        return max(0, top_ns - (own_ns if least_ns is None else min(own_ns, round(least_ns))))


def _kept(row: Json) -> Json:
    """A row of history, with the keys that one of now has as far as they are kept."""
    return {
        **row,
        "direction": "egress",
        "peer_addr": row["dst_addr"],
        "naks": {"all": row["naks"]},
        "pps": None,
        "age_s": None,
    }


def place_of(name: QpName) -> Json:
    """The page about a queue pair."""
    return {"page": "qp", "host": name.host, "nic": name.nic, "dst_addr": name.dst_addr, "qpn": name.qpn}
