"""How experiments write numbers in tables, and labs in JSON."""

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from tools.lab import Lab, LabSpec


def new_table(name: str, numbers: Iterable[str]) -> Table:
    """A table with a column of names, then numbers to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(name, no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def mbit(rate_bps: float | None) -> str:
    """A rate in Mbit/s."""
    return "-" if rate_bps is None else f"{rate_bps / 1e6:.1f}"


def ms(duration_ns: float | None) -> str:
    """A duration in ms, to three digits or so."""
    if duration_ns is None:
        return "-"
    value = duration_ns / 1e6
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def share(value: float | None) -> str:
    """A share in per cent."""
    return "-" if value is None else f"{value:.0%}"


def describe_lab(lab: Lab, spec: LabSpec, **rates: object) -> dict[str, Any]:
    """A lab as `--json` has it, with what else there is to say of its rates."""
    return {
        "pods": spec.pods,
        "leaves": spec.leaves,
        "spines": spec.spines,
        "cores": spec.cores,
        "hosts": len(lab.hosts),
        "nics": spec.nics_per_host,
        "rate_bps": spec.rate_bps,
        **rates,
        "clocks": lab.spec.clocks,
    }
