"""A three-stage Clos with queueing, for probes that sample it.

Every link is an M/D/1 queue of 4 KiB packets. Its virtual waiting time is a geometric number of
uniform parts of one packet's time (Pollaczek-Khinchine for constant service), which is exact, and
probes milliseconds apart see it afresh. Loads swing about their mean per link over half a second;
the second probe of a pair mostly finds the queue that the first one found.
"""

from dataclasses import dataclass

import numpy as np

from cwdp.shared.clocksync._types import F64, I64

PACKET_BITS = (4096 + 90) * 8
LOAD_STEP_S = 0.05
_LOAD_SWING = 0.1
_LOAD_MEMORY_S = 0.5
_MOST_LOAD = 0.95
_EXACT_PARTS = 4
_FIBRE_NS_PER_M = 5.0
_SWITCH_NS = 600.0


@dataclass(frozen=True, slots=True)
class Fabric:
    """Links of a Clos: NIC up, leaf to spine, spine to leaf, NIC down.

    Attributes:
        n_nics: NICs; NIC i hangs below leaf i // nics_per_leaf.
        nics_per_leaf: so many per leaf.
        n_spines: every leaf has a link to each.
        load: float64 [steps, links], swings about the mean.
        service_ns: time of one packet on a link.
        cable_ns: float64 [links], propagation.
    """

    n_nics: int
    nics_per_leaf: int
    n_spines: int
    load: F64
    service_ns: float
    cable_ns: F64

    @classmethod
    def random(
        cls, n_nics: int, seconds: float, load: float, rate_bps: float, rng: np.random.Generator
    ) -> "Fabric":
        """A fabric of about sqrt(n) leaves, not oversubscribed."""
        per_leaf = max(2, min(32, round(np.sqrt(n_nics / 2))))
        n_leaves = -(-n_nics // per_leaf)
        n_links = 2 * n_nics + 2 * n_leaves * per_leaf
        steps = int(np.ceil(seconds / LOAD_STEP_S)) + 2
        keep = np.exp(-LOAD_STEP_S / _LOAD_MEMORY_S)
        swing = np.empty((steps, n_links), np.float32)
        swing[0] = rng.standard_normal(n_links)
        for i in range(1, steps):
            swing[i] = keep * swing[i - 1] + np.sqrt(1 - keep**2) * rng.standard_normal(n_links)
        cable = rng.uniform(3, 5, n_links)
        cable[2 * n_nics :] = rng.uniform(10, 60, 2 * n_leaves * per_leaf)
        # Both directions of a cable are as long as each other.
        cable[n_nics : 2 * n_nics] = cable[:n_nics]
        half = n_leaves * per_leaf
        cable[2 * n_nics + half :] = cable[2 * n_nics : 2 * n_nics + half]
        loads = np.clip(load * (1 + _LOAD_SWING * swing), 0.0, _MOST_LOAD)
        return cls(n_nics, per_leaf, per_leaf, loads, PACKET_BITS / rate_bps * 1e9, cable * _FIBRE_NS_PER_M)

    def route(self, src: I64, dst: I64, spine: I64) -> I64:
        """Links from NIC to NIC over a spine, int64 [4, paths]; below one leaf, NIC links only (else -1)."""
        leaf_out, leaf_in = src // self.nics_per_leaf, dst // self.nics_per_leaf
        base = 2 * self.n_nics
        half = (len(self.cable_ns) - base) // 2
        up = base + leaf_out * self.n_spines + spine
        down = base + half + leaf_in * self.n_spines + spine
        local = leaf_out == leaf_in
        return np.stack((src, np.where(local, -1, up), np.where(local, -1, down), self.n_nics + dst))

    def propagation_ns(self, route: I64) -> F64:
        """Delay of routes without queues: float64 [paths]."""
        hop = np.where(route >= 0, self.cable_ns[route] + _SWITCH_NS, 0.0)
        return np.asarray(hop.sum(axis=0) - _SWITCH_NS)

    def queueing_ns(self, route: I64, time_s: F64, rng: np.random.Generator) -> F64:
        """Waiting of probes along their routes.

        Args:
            route: int64 [4, paths].
            time_s: float64 [paths, probes].
            rng: source of randomness.
        """
        step = (time_s / LOAD_STEP_S).astype(np.int64)
        parts = np.zeros(time_s.shape, np.int64)
        for link in route:
            load = np.where(link[:, None] >= 0, self.load[step, link[:, None]], 0.0)
            # A geometric number of parts, by inversion.
            parts += (np.log1p(-rng.random(time_s.shape)) / np.log(np.maximum(load, 1e-9))).astype(np.int64)
        return self.service_ns * _sum_of_uniforms(parts, rng)


def _sum_of_uniforms(count: I64, rng: np.random.Generator) -> F64:
    """Sum of `count` uniforms each: exact up to four, normal beyond, where the floor is far away."""
    few = np.minimum(count, _EXACT_PARTS)
    total = np.zeros(count.shape)
    for i in range(_EXACT_PARTS):
        total += np.where(i < few, rng.random(count.shape), 0.0)
    more = count > _EXACT_PARTS
    many = count[more]
    total[more] = np.maximum(many / 2 + np.sqrt(many / 12) * rng.standard_normal(many.size), 0.5)
    return total
