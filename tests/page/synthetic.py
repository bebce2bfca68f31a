"""A fabric that never was, as the manager tells of it over HTTP (docs/http.md): what the page's tests are run against.

Two tiers, one of each fault, and names that would be markup if the page took them for it.
"""

import base64
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

Json = dict[str, Any]

HOSTILE_HOST = "<img src=x onerror=document.title='owned'>"
HOSTILE_JOB = '"><script>document.title="owned"</script>&amp;'
LOWEST, RATIO = 1000.0, 1.08
NICS_PER_LEAF = 4
HISTORY_S = 14 * 86400.0
METRICS = ("spread", "p50", "loss", "load")
SCALES = {
    "spread": (LOWEST, RATIO, "ns"),
    "p50": (LOWEST, RATIO, "ns"),
    "loss": (1e-5, 1.1, "ratio"),
    "load": (1e6, 1.1, "bps"),
}


class RefusedError(Exception):
    """The manager's "no"."""

    def __init__(self, status: int, error: str, hint: str) -> None:
        super().__init__(error)
        self.status, self.answer = status, {"error": error, "hint": hint}


def coded(values: np.ndarray, metric: str) -> np.ndarray:
    """Values as codes; NaN is not probed."""
    lowest, ratio, _ = SCALES[metric]
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.where(values < lowest, 1, np.floor(np.log(values / lowest) / np.log(ratio)) + 2)
    return np.where(np.isnan(values), 0, np.clip(codes, 0, 255)).astype(np.uint8)


def text(codes: np.ndarray) -> str:
    return base64.b64encode(codes.tobytes()).decode()


class Synthetic:
    """What there is to be told; `advance` makes it one second later."""

    def __init__(self, *, leaves: int = 12, spines: int = 4, seed: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self.started_s = time.time()
        self.leaves = [f"10.254.1.{i + 1}" if leaves < 200 else f"leaf-{i:03}" for i in range(leaves)]
        self.spines = [f"10.254.2.{i + 1}" for i in range(spines)]
        self.hosts = [f"h{i + 1}" for i in range(leaves * NICS_PER_LEAF)]
        self.hosts[1] = HOSTILE_HOST
        self.version = 1
        self.changes: dict[int, list[int]] = {}
        self.codes = {metric: self._matrix(metric) for metric in METRICS}
        self.notices: list[Json] = []
        self.asked: list[str] = []
        self.in_bursts = ["h1", HOSTILE_JOB]
        self.causes: list[Json] = []
        self.events = self._events()

    # What changes.

    def advance(self) -> None:
        """Change some cells of every metric."""
        count = len(self.leaves)
        cells = self.random.choice(count * count, size=min(20, count), replace=False)
        self.change([int(cell) for cell in cells if cell % (count + 1)])

    def change(self, cells: list[int], code: int | None = None) -> None:
        """Give cells of every metric other codes, which is a new version."""
        self.version += 1
        self.changes[self.version] = cells
        for codes in self.codes.values():
            known = [cell for cell in cells if codes[cell]]
            codes[known] = self.random.integers(1, 60, len(known)) if code is None else code

    def _matrix(self, metric: str) -> np.ndarray:
        count = len(self.leaves)
        base = {"spread": 6e3, "p50": 9e3, "loss": 4e-6, "load": 4e8}[metric]
        values = base * self.random.lognormal(0, 0.6, (count, count))
        if metric != "load":
            values[2 % count] *= 40
            values[:, 5 % count] *= 8
        values[7 % count, :: max(2, count // 5)] = np.nan
        np.fill_diagonal(values, base / 4)
        return coded(values, metric).ravel()

    def _events(self) -> list[Json]:
        kinds = [
            "link_silent",
            "path_down",
            "path_up",
            "qp_moved",
            "clock_changed",
            "host_up",
            "incast_started",
        ]
        events = [
            {
                "time_s": self.started_s - float(age_s),
                "host": self.hosts[i % len(self.hosts)],
                "nic": "nic0",
                "kind": kinds[i % len(kinds)],
                "detail": f"to 10.2.0.{i % 9 + 1} from port {50000 + i}: silent for 11.8 ms",
                "why": None if i % 9 else HOSTILE_JOB,
            }
            for i, age_s in enumerate(self.random.exponential(2500, 160))
        ]
        return sorted(events, key=lambda event: event["time_s"])

    # Names.

    def leaf(self, i: int) -> str:
        return self.leaves[i % len(self.leaves)]

    def spine(self, i: int) -> str:
        return self.spines[i % len(self.spines)]

    def nics(self, leaf: str) -> list[str]:
        first = self.leaves.index(leaf) * NICS_PER_LEAF
        return [f"{host}/nic0" for host in self.hosts[first : first + NICS_PER_LEAF]]

    def links(self) -> Iterator[tuple[str, str]]:
        for leaf in self.leaves:
            for spine in self.spines:
                yield leaf, spine
                yield spine, leaf

    def knows(self, a: str, b: str) -> bool:
        switches = {*self.leaves, *self.spines}
        nics = {f"{host}/nic0" for host in self.hosts}
        return (a in switches or a in nics) and (b in switches or b in nics)

    # Rows.

    def link(self, a: str, b: str) -> Json:
        place = sum(map(ord, a + b)) % 97
        state = {(self.leaf(1), self.spine(1)): "silent", (self.leaf(2), self.spine(0)): "lossy"}.get(
            (a, b), "avoided" if (b, a) == (self.leaf(1), self.spine(1)) else "ok"
        )
        queue_ns = 900.0 * (1 + place) * (60 if state == "lossy" else 1)
        return {
            "a": a,
            "b": b,
            "state": state,
            "queue_ns": None if state == "silent" else queue_ns / 2,
            "queue_p50_ns": None if state == "silent" else queue_ns / 3,
            "queue_p99_ns": None if state == "silent" else queue_ns,
            "load_bps": 3.7e9 * place,
            "capacity_bps": None,
            "likely_capacity_bps": 400e9,
            "share": round(3.7 * place / 400, 4),
            "loss": {"silent": 1.0, "lossy": 0.021}.get(state, 0.0),
        }

    def qp(self, i: int) -> Json:
        src, dst = self.hosts[i % len(self.hosts)], self.hosts[(i * 5 + 3) % len(self.hosts)]
        p50_ns = 8000.0 + 700 * (i % 11)
        return {
            "host": src,
            "nic": "nic0",
            "direction": "egress",
            "peer": f"{dst}/nic0",
            "peer_addr": f"10.{i % 7}.0.{i % 200 + 1}",
            "qpn": 4000 + i,
            "sport": 50000 + i,
            "slice": 0,
            "packets": 123456 + i,
            "bytes": 987654321,
            "acks": 12,
            "pps": 300.0,
            "bps": 2.1e10 + i,
            "paced_bps": 1e10 if i % 4 == 0 else None,
            "ce_marks": i,
            "cnps": i // 2,
            "naks": {"psn_sequence": i % 3, "rnr": 0, "other": 0},
            "psn_retransmitted": i % 5,
            "psn_gaps": 0,
            "psn_reordered": 0,
            "age_s": 0.4,
            "spread_ns": 90e3 / (i + 1),
            "job": self.job(i % 3)["name"],
            "owd": None
            if i % 5 == 4
            else {
                "samples": 64,
                "min_ns": 7000,
                "p50_ns": p50_ns,
                "p99_ns": 9 * p50_ns,
                "max_ns": 11 * p50_ns,
                "bound_ns": 240,
            },
        }

    def move(self, qp: Json) -> Json:
        named = {key: qp[key] for key in ("host", "nic", "qpn")} | {"dst_addr": qp["peer_addr"]}
        return named | {
            "time_s": self.started_s - 60,
            "what": "rerouted",
            "sport": 50017,
            "backup_sport": 51000,
            "switches": ["l1", "s2", "l2"],
            "before_sport": 50003,
            "before_backup_sport": 50017,
            "before_switches": ["l1", "s1", "l2"],
            "why": f"l1 > s1 is found silent {HOSTILE_JOB}",
        }

    def job(self, i: int) -> Json:
        return {
            "name": ["h1 +15", HOSTILE_JOB, "h33 +3"][i],
            "is_inferred": True,
            "hosts": 16 - 6 * i,
            "nics": 16 - 6 * i,
            "queue_pairs": 240 - 90 * i,
            "bps": 1.2e12 / (i + 1),
            "spread_ns": 90e3 / (i + 1),
            "findings": int(i == 0),
        }

    def findings(self) -> list[Json]:
        leaf, spine = self.leaf(1), self.spine(1)
        silent = self._finding(1, "silent", "critical", leaf, spine, loss=1.0)
        lossy = self._finding(2, "lossy", "critical", self.leaf(2), self.spine(0), loss=0.021)
        slow = self._finding(3, "slow_receiver", "warning", leaf, f"{HOSTILE_HOST}/nic0", loss=0.0)
        slow |= {"where": {"page": "host", "name": HOSTILE_HOST}, "title": f"{HOSTILE_HOST} receives slowly"}
        full = self._finding(None, "contention", "info", self.leaf(0), self.spine(2), loss=0.0)
        return [silent, lossy, slow, full]

    def _finding(self, number: int | None, kind: str, severity: str, a: str, b: str, *, loss: float) -> Json:
        subject = {"kind": "direction", "name": f"{a} > {b}", "links": [[a, b]]}
        other = {"kind": "direction", "name": f"{self.leaf(3)} > {b}", "links": [[self.leaf(3), b]]}
        return {
            "number": number,
            "kind": kind,
            "severity": severity,
            "subject": subject,
            "also": [other] if kind == "lossy" else [],
            "confidence": 0.997,
            "loss": loss,
            "evidence": ["564 of 614 probes over it were lost in 0.3 s, 0.03% of others"],
            "start_s": self.started_s - 340,
            "end_s": None,
            "title": f"{a} > {b} is {kind}",
            "where": {"page": "link", "a": a, "b": b},
            "act": [
                {"command": f"cwdp link --limit 10  # {a}", "text": "See it in a terminal:"},
                {"command": None, "text": "Look at the optics and the error counters at both ends."},
            ],
            "touches": {"queue_pairs": 12, "jobs": [self.job(0)["name"], HOSTILE_JOB]},
        }
