"""Families of metrics with their values, in few words."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

NS = 1e-9
QUANTILES = (0.5, 0.99, 1.0)

Labels = tuple[str, ...]


def gauge(name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    """One value, perhaps with labels."""
    family = GaugeMetricFamily(name, text, labels=list(labels or ()))
    family.add_metric(list((labels or {}).values()), value)
    return family


def gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A value for each value of a label."""
    return labelled_gauges(name, text, (label,), {(key,): value for key, value in values.items()})


def labelled_gauges(name: str, text: str, labels: Sequence[str], values: Mapping[Labels, float]) -> Metric:
    """A value for each combination of labels' values; those that are NaN are left out."""
    family = GaugeMetricFamily(name, text, labels=list(labels))
    for key, value in values.items():
        if value == value:  # noqa: PLR0124 - NaN is not
            family.add_metric(list(key), value)
    return family


def counter(name: str, text: str, value: float) -> Metric:
    """One total."""
    return CounterMetricFamily(name, text, value=value)


def counters(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """A total for each value of a label."""
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def quantiles(name: str, text: str, values: NDArray[np.float64]) -> Metric:
    """Quantiles of what is known of some values; nothing of none."""
    return labelled_gauges(name, text, ("quantile",), quantile_values((), values))


def quantile_values(key: Labels, values: NDArray[np.float64]) -> dict[Labels, float]:
    """Quantiles of what is finite of some values, each under a key and the quantile."""
    known = values[np.isfinite(values)]
    if not known.size:
        return {}
    found = np.quantile(known, QUANTILES).tolist()
    return {(*key, str(quantile)): value for quantile, value in zip(QUANTILES, found, strict=True)}
