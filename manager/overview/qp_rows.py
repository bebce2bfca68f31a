"""Queue pairs of a moment as rows, live from the tables, of the past as history kept them. No I/O."""

from collections.abc import Iterable

from cwdp.shared.bus.records import EGRESS
from manager.moment.moment import Moment
from manager.planner.flows import QpName
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
        name = talkers.names[i]
        row = self._live.of(name, EGRESS) if self._live is not None else _kept(talkers.kept[i])
        if row is None:
            return None
        owd = row["owd"]
        spread_ns = None if owd is None else owd["p99_ns"] - owd["min_ns"]
        return row | {"job": talkers.jobs.of_flow[i], "spread_ns": spread_ns}

    def rows(self, places: Iterable[int]) -> list[Json]:
        """Those that are still there."""
        return [row for row in map(self.row, places) if row is not None]

    def slowest(self, places: Iterable[int], most: int) -> list[Json]:
        """The longest one-way delay above the least first, of the fastest of some; those without stamps last."""
        rows = self.rows(list(places)[:SLOWEST_OF])
        rows.sort(key=lambda row: -1 if row["spread_ns"] is None else row["spread_ns"], reverse=True)
        return rows[:most]


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
