"""Links with what was measured of them, now or in the past, as arrays: rows are made of those alone that are shown. No I/O."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from manager.history.measured import Measurement
from manager.links.loads import LinkLoads
from manager.view.json_values import Json, rounded
from manager.view.severity import state_rank, worst_state

Link = tuple[str, str]
Floats = NDArray[np.float64]

SHARE_DIGITS = 6
NUMBERS = ("queue_ns", "queue_p50_ns", "queue_p99_ns", "load_bps", "capacity_bps", "likely_capacity_bps")


@dataclass(frozen=True, eq=False)
class LinkTable:
    """Every link, each way by itself; arrays of shape (links,).

    Attributes:
        names: the two ends of each.
        values: by the key in a row (`NUMBERS`, `loss`), NaN for unknown; those that are missing are not known of any.
        wrong: what a finding says of links, the gravest.
        stands: whether the queue has not emptied of late.
        avoided: links that nothing is sent over, as the planner has it.
    """

    names: Sequence[Link]
    values: Mapping[str, Floats]
    wrong: Mapping[Link, str]
    stands: NDArray[np.bool_]
    avoided: frozenset[Link] = frozenset()

    @cached_property
    def number(self) -> dict[Link, int]:
        """Where each link is."""
        return {(a, b): i for i, (a, b) in enumerate(self.names)}

    def state(self, i: int) -> str:
        """What is wrong with a link, in a word."""
        a, b = self.names[i]
        states = [self.wrong.get((a, b), "ok"), "full" if self.stands[i] else "ok"]
        return worst_state([*states, "avoided"] if (a, b) in self.avoided else states)

    def row(self, i: int) -> Json:
        """A link for programs."""
        a, b = self.names[i]
        load_bps, likely_bps, loss = (
            self._value(key, i) for key in ("load_bps", "likely_capacity_bps", "loss")
        )
        return {
            "a": a,
            "b": b,
            "state": self.state(i),
            **{key: rounded(self._value(key, i)) for key in NUMBERS},
            "share": round(load_bps / likely_bps, 4) if likely_bps > 0 and math.isfinite(load_bps) else None,
            "loss": round(loss, SHARE_DIGITS) if math.isfinite(loss) else None,
        }

    def unknown(self, a: str, b: str) -> Json:
        """A row for a link of which nothing is known but that it is there."""
        return {"a": a, "b": b, "state": "unknown", **dict.fromkeys((*NUMBERS, "share", "loss"))}

    def row_of(self, a: str, b: str) -> Json:
        """The row of a link by its ends."""
        i = self.number.get((a, b))
        return self.unknown(a, b) if i is None else self.row(i)

    def worst(self, most: int) -> list[Json]:
        """Rows of those in trouble first, then of those with the longest queues."""
        queue_ns = np.nan_to_num(self.values.get("queue_p99_ns", np.zeros(len(self.names))), nan=-1.0)
        count = min(most, len(queue_ns))
        chosen = set(np.argpartition(-queue_ns, count - 1)[:count].tolist() if count else [])
        chosen |= {self.number[link] for link in (*self.wrong, *self.avoided) if link in self.number}
        chosen |= set(np.flatnonzero(self.stands).tolist())
        rows = sorted((self.row(i) for i in chosen), key=by_trouble)
        return rows[:most]

    def _value(self, key: str, i: int) -> float:
        return float(self.values[key][i]) if key in self.values else math.nan


def by_trouble(row: Json) -> tuple[int, float, str, str]:
    """Sorts rows: what is wrong first, then the longest queue."""
    return state_rank(row["state"]), -(row["queue_p99_ns"] or 0), row["a"], row["b"]


def of_now(loads: LinkLoads, findings: Iterable[Json], avoided: Iterable[Link] = ()) -> LinkTable:
    """The links as they are."""
    values = {key: getattr(loads, key) for key in (*NUMBERS, "loss")}
    return LinkTable(loads.routes.links, values, wrong(findings), loads.stands, frozenset(avoided))


def of_then(found: Measurement, findings: Iterable[Json], avoided: Iterable[Link] = ()) -> LinkTable:
    """The links as history has them."""
    nothing_stands = np.zeros(len(found.names), bool)
    return LinkTable(found.names, found.values, wrong(findings), nothing_stands, frozenset(avoided))


def wrong(findings: Iterable[Json]) -> dict[Link, str]:
    """The gravest kind of finding about each link, those included that cannot be told from its subject."""
    kinds: dict[Link, str] = {}
    for finding in findings:
        for subject in (finding["subject"], *finding["also"]):
            for a, b in subject["links"]:
                kinds[a, b] = worst_state([kinds.get((a, b), "ok"), finding["kind"]])
    return kinds
