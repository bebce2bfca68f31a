"""The queue pairs of one interface of this host, straight from its dataplane's maps."""

import math
import time
from typing import Any, Self

import numpy as np

from cwdp.cli.local.loaded import require_loaded
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.telemetry import QpReader
from cwdp.shared.bus.records import EGRESS, QP_ROW, qp_as_json, qp_keys

_BITS = 8
_NOTHING = np.zeros((), QP_ROW)[()]


class LocalQueuePairs:
    """Reads the tables again and again; the first time on entry.

    Raises:
        CwdpError: the interface is not there, has no dataplane, or may not be read.
    """

    def __init__(self, ifname: str) -> None:
        tree.require_privileges()
        self._ifname = ifname
        self._maps = Maps(require_loaded(ifname))
        self._reader = QpReader(self._maps)
        self._rows: dict[bytes, tuple[np.void, float]] = {}
        self._rates: dict[bytes, tuple[float, float]] = {}
        self._read_s = 0.0

    def __enter__(self) -> Self:
        self._take()
        self._rates.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._maps.close()

    def read(self, sort: str, limit: int) -> dict[str, Any]:
        """What the manager would answer, rates since the last reading."""
        self._take()
        found = [self._describe(key) for key in self._rows]
        found.sort(key=lambda row: -_score(row, sort))
        shown = found[:limit] if limit > 0 else found
        return {"qp_count": len(found), "unlisted": 0, "queue_pairs": shown}

    def _take(self) -> None:
        rows, _ = self._reader.read()
        now_s = time.monotonic()
        took_s = now_s - self._read_s
        self._rates.clear()
        for key, row in zip(qp_keys(rows).tolist(), rows, strict=True):
            before, _ = self._rows.get(key, (_NOTHING, 0.0))
            grown = [int(row[name]) - int(before[name]) for name in ("packets", "bytes")]
            if min(grown) < 0:
                grown = [int(row[name]) for name in ("packets", "bytes")]
            self._rates[key] = grown[0] / took_s, grown[1] / took_s
            self._rows[key] = row, now_s
        self._read_s = now_s

    def _describe(self, key: bytes) -> dict[str, Any]:
        row, read_s = self._rows[key]
        pps, bytes_per_s = self._rates.get(key, (0.0, 0.0))
        return {
            "host": None,
            "nic": self._ifname,
            **qp_as_json(row),
            "peer": None,
            "pps": round(pps, 1),
            "bps": round(_BITS * bytes_per_s, 1),
            "paced_bps": None,
            "age_s": round(self._read_s - read_s + int(row["age_ns"]) * 1e-9, 3),
            "owd": None,
            "actuator": "tc" if row["direction"] == EGRESS else None,
            "process": None,
        }


def _score(row: dict[str, Any], sort: str) -> float:
    """What is sorted by, as the manager does it."""
    match sort:
        case "bytes":
            return float(row["bytes"])
        case "lost":
            return float(row["psn_retransmitted"] + row["psn_gaps"])
        case "naks":
            return float(sum(row["naks"].values()))
        case "marked":
            return float(row["ce_marks"] + row["cnps"])
        case _:
            return float(row["bps"]) if math.isfinite(row["bps"]) else 0.0
