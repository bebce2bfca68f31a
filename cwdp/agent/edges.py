"""The edges of a host: their slots, their window, their memory, and the fits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cwdp.agent.window import Samples, Window
from cwdp.shared.clocksync import EdgeFits, EdgeMemory, EdgePrior, FitReason, fit_edges
from cwdp.shared.messages import DriftPrior, EdgeFit

EdgeName = tuple[str, str]
LEAST_SLOTS = 64


class HostEdges:
    """Every edge that this host initiates; one keeps its slot for as long as it is probed."""

    def __init__(self) -> None:
        self._slot: dict[EdgeName, int] = {}
        self._free = list(range(LEAST_SLOTS))
        self._size = LEAST_SLOTS
        self._memory = EdgeMemory(LEAST_SLOTS)
        self._window = Window()
        self._priors: dict[str, DriftPrior] = {}

    def assign(self, edges: Sequence[EdgeName]) -> None:
        """Have exactly these edges: new ones get a slot, those that are gone leave theirs."""
        gone = set(self._slot) - set(edges)
        freed = {self._slot.pop(edge) for edge in gone}
        self._free += sorted(freed)
        new = [edge for edge in dict.fromkeys(edges) if edge not in self._slot]
        if len(new) > len(self._free):
            self._grow(max(2 * self._size, len(self._slot) + len(new)))
        self._window.forget(freed)
        forgotten = np.zeros(self._size, dtype=bool)
        for edge in new:
            slot = self._free.pop(0)
            self._slot[edge] = slot
            forgotten[slot] = True
        self._memory.forget(forgotten)

    def _grow(self, size: int) -> None:
        """Make room; what is remembered of rates is learnt anew, within seconds."""
        self._free += range(self._size, size)
        self._memory = EdgeMemory(size)
        self._size = size

    def slots(self, edges: Sequence[EdgeName]) -> NDArray[np.intp]:
        """The slots of some edges."""
        return np.array([self._slot[edge] for edge in edges], dtype=np.intp)

    def believe(self, priors: list[DriftPrior]) -> None:
        """Take in what the manager knows of the peers' rates."""
        self._priors = {prior.dst: prior for prior in priors}

    def add(self, now_ns: int, samples: Samples) -> None:
        """Take in samples."""
        self._window.add(now_ns, samples)
        self._window.age(now_ns, self._memory.slope)

    def fit(self, now_local_ns: int) -> list[EdgeFit]:
        """Fit every edge over the window; edges without enough to go on are left out."""
        exchanges = self._window.exchanges(self._size)
        probed = np.flatnonzero(np.diff(exchanges.starts))
        starts = np.append(exchanges.starts[probed], exchanges.starts[-1])
        some = fit_edges(replace(exchanges, starts=starts), self._prior(now_local_ns, probed))
        fits = _of_all(some, probed, self._size)
        self._memory.update(fits)
        self._window.forget_remembered(set(np.flatnonzero(fits.reason == FitReason.TORN).tolist()))
        out = []
        for (src, dst), slot in self._slot.items():
            if fits.reason[slot] not in (FitReason.OK, FitReason.TORN):
                continue
            out.append(
                EdgeFit(
                    src=src,
                    dst=dst,
                    ref_local_ns=int(fits.ref_ns[slot]),
                    offset_base_ns=int(fits.offset_ns[slot]),
                    offset_ns=float(fits.offset_frac_ns[slot]),
                    slope=float(fits.slope[slot]),
                    margin_ns=float(fits.margin_ns[slot]),
                    sigma_offset_ns=float(fits.sigma_offset_ns[slot]),
                    sigma_out_ns=float(fits.sigma_out_ns[slot]),
                    sigma_back_ns=float(fits.sigma_back_ns[slot]),
                    sigma_slope=float(fits.sigma_slope[slot]),
                    points=float(fits.points[slot]),
                    pure_share=float(fits.pure_share[slot]),
                    torn=bool(fits.reason[slot] == FitReason.TORN),
                )
            )
        return out

    def _prior(self, now_local_ns: int, slots: NDArray[np.intp]) -> EdgePrior:
        """What is known of some slots: the surer of the manager's word and this host's own memory."""
        prior = self._memory.prior(now_local_ns)
        for (_, dst), slot in self._slot.items():
            known = self._priors.get(dst)
            if known is not None and known.sigma < prior.sigma_slope[slot]:
                prior.slope[slot], prior.sigma_slope[slot] = known.slope, known.sigma
        return EdgePrior(
            prior.slope[slots], prior.sigma_slope[slots], prior.floor_ns[slots], prior.sigma_floor_ns[slots]
        )


def _of_all(fits: EdgeFits, slots: NDArray[np.intp], size: int) -> EdgeFits:
    """The fits of some slots as those of all: the others had nothing to go on."""
    whole = {}
    for name in EdgeFits.__slots__:
        some = getattr(fits, name)
        fill = FitReason.TOO_FEW if name == "reason" else 0
        whole[name] = np.full(size, fill, some.dtype)
        whole[name][slots] = some
    return EdgeFits(**whole)
