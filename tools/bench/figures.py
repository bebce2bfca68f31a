"""The one form of a measurement: what was found, beside its reference and its target."""

from typing import Any

Figure = dict[str, Any]


def figure(
    name: str, value: float, unit: str, reference: object, target: float | None, *, digits: int = 5
) -> Figure:
    """A measurement, met where it is no more than its target, before rounding; without one neither met nor missed."""
    return {
        "name": name,
        "value": round(float(value), digits),
        "unit": unit,
        "reference": reference,
        "target": target,
        "met": None if target is None else bool(value <= target),
    }


def not_measured(name: str, unit: str, why: str) -> Figure:
    """In the place of a measurement that tells nothing."""
    return {
        "name": name,
        "value": None,
        "unit": unit,
        "reference": {"not_measured": why},
        "target": None,
        "met": None,
    }
