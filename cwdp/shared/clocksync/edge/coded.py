"""Coded probes: a pair whose spacing was changed on the way met a queue.

After Geng et al., "Exploiting a Natural Network Effect for Scalable, Fine-grained Clock
Synchronization" (NSDI 2018), section 3.2; here purity weighs a probe instead of gating it.
"""

from dataclasses import dataclass

import numpy as np

from cwdp.shared.clocksync._types import F64, I64

# Four stamps make one spacing error, so it has twice the noise of a stamp; exponential jitter adds to it.
_PURE_WITHIN = 3.0
_LEAST_NOISE_NS = 1.0
_LEAST_WEIGHT = 0.25
# The undisturbed core is sought among this share of the pairs; with fewer pure pairs all count alike.
_CORE_QUANTILE = 0.1
_CORE_QUANTILE_IN_SIGMAS = 0.1257


@dataclass(frozen=True, slots=True)
class Purity:
    """How far each pair kept its spacing.

    Attributes:
        weight: float64 [pairs], 1 for an undisturbed pair down to 0.25.
        queued_share: the share of pairs that met a queue, 0 to 1; NaN without pairs.
    """

    weight: F64
    queued_share: float


def pair_purity(tx_spacing_ns: I64, rx_spacing_ns: I64, stamp_noise_ns: float = 5.0) -> Purity:
    """Weigh the pairs of one direction by how well they kept their spacing.

    Args:
        tx_spacing_ns: int64 [pairs], second minus first transmit stamp.
        rx_spacing_ns: int64 [pairs], second minus first receive stamp.
        stamp_noise_ns: standard deviation of one stamp; the data may raise it.

    Returns:
        A weight per pair, for both of its probes, and the share of queued pairs.
    """
    error = np.abs((rx_spacing_ns - tx_spacing_ns).astype(np.float64))
    if error.size == 0:
        return Purity(error, float("nan"))
    core = float(np.quantile(error, _CORE_QUANTILE)) / _CORE_QUANTILE_IN_SIGMAS
    tolerance = _PURE_WITHIN * max(min(core, 10 * stamp_noise_ns), 2 * stamp_noise_ns, _LEAST_NOISE_NS)
    weight = _LEAST_WEIGHT + (1 - _LEAST_WEIGHT) / (1 + (error / tolerance) ** 2)
    return Purity(weight, float(np.mean(error > tolerance)))
