"""Queues that stand or come and go at the links of one leaf and three spines, and what a watch for slow links says of them."""

from typing import Any

import numpy as np

from manager.fabric.routes import DirectedLink, Routes
from manager.faults.delay_watch import DelayWatch, Slow
from manager.faults.finding import Finding, Findings, cable
from manager.links.loads import LinkLoads

LINKS = (
    *(DirectedLink(*pair) for i in range(3) for pair in ((f"h{i}/nic0", "l1"), ("l1", f"h{i}/nic0"))),
    *(DirectedLink(*pair) for i in range(3) for pair in (("l1", f"s{i}"), (f"s{i}", "l1"))),
)


class Events:
    """What is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str | None]] = []

    def __call__(self, host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
        assert detail
        self.told.append((host, kind, nic))


class Queues:
    """Queues as they are said to be."""

    def __init__(
        self, stands: dict[int, float], links: int = len(LINKS), of_late: Any = True, *, apart: bool = True
    ) -> None:
        self.queue_ns, self.of_late, self.apart = np.zeros((20, links)), of_late, apart
        for i, queue_ns in stands.items():
            self.queue_ns[:, i] = queue_ns

    def stands(self, _windows: int) -> Any:
        return (self.queue_ns[-1] > 0) & self.of_late

    def busy(self) -> Any:
        return self.queue_ns[-1] > 0

    def shows_apart(self, _link: DirectedLink, _windows: int) -> bool:
        return self.apart


def loads_of(load_bps: dict[int, float], others_bps: float = 100e6) -> LinkLoads:
    load = np.full(len(LINKS), others_bps)
    for i, each in load_bps.items():
        load[i] = each
    nothing = np.full(len(LINKS), np.nan)
    sure = np.ones(len(LINKS), bool)
    return LinkLoads(routes=Routes(1, LINKS), load_bps=load, is_sure=sure, capacity_bps=nothing)


class Watched:
    """A watch for slow links and hosts, what it found, and what of it holds."""

    def __init__(self) -> None:
        self.findings, self.opened = Findings(), list[str]()
        self.watch = DelayWatch(
            self._open,
            lambda finding, slow: setattr(finding, "subject", cable(slow.link)),
            lambda finding: self.findings.close(finding, 1.0),
        )

    @property
    def held(self) -> list[tuple[str, str]]:
        return [(each.kind, each.subject.name) for each in self.findings.current.values()]

    def see(self, windows: int, queues: "Queues", loads: LinkLoads) -> list[tuple[str, str]]:
        """What holds after some windows."""
        for _ in range(windows):
            self.watch.step(queues, loads)  # type: ignore[arg-type]
        return self.held

    def _open(self, slow: Slow) -> Finding:
        self.opened.append(slow.kind)
        return self.findings.open(
            Finding(number=0, kind=slow.kind, subject=slow.subject, confidence=1.0, evidence=[], start_s=0.0)
        )
