"""`cwdp lab run sync`: how far every host's clock is from the truth, idle or under load."""

import time
from dataclasses import asdict
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import emit, progress
from cwdp.errors import ManagerError
from manager.probing.schedule import Family
from tools.clocks import ClockKind
from tools.lab.fleet.processes import LAB_PROBES, Fleet
from tools.lab.fleet.session import SETTLE_S, Traffic, lab_for_run, sample, wait_for_lock
from tools.lab.params import CLOCKS, SHARE
from tools.lab.topology import LabSpec
from tools.lab.truth.clocks import Reading, Truth

RUN_NAME = "sync"
ASKED_EVERY_S = 0.1
"""The manager finds the clocks anew four times a second."""


@click.command()
@click.option(
    "--load", "share", type=SHARE, default="0", show_default=True, help="Share of the links' rate to fill."
)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=30.0, show_default=True, help="How long to measure."
)
@click.option(
    "--settle",
    type=click.FloatRange(min=0),
    default=SETTLE_S,
    show_default=True,
    help="Seconds to wait before, once all clocks agree.",
)
@click.option("--name", help="A lab that is up; else the default one is raised for the run.")
@click.option("--seed", default=1, show_default=True, help="Draws the hosts' clocks.")
@click.option(
    "--family", type=click.Choice(["4", "6", "both"]), default="4", show_default=True, help="IP version."
)
@CLOCKS
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def sync(
    *,
    share: float,
    seconds: float,
    settle: float,
    name: str | None,
    seed: int,
    family: Family,
    clocks: ClockKind,
    as_json: bool,
) -> None:
    """Sync the lab's clocks from cold, then compare them with the truth that the lab set."""
    result = run_sync(share, seconds, settle_s=settle, name=name, seed=seed, family=family, clocks=clocks)
    emit(result, as_json=as_json, render=lambda: _render(result))


def run_sync(
    share: float,
    seconds: float,
    *,
    settle_s: float = SETTLE_S,
    name: str | None = None,
    seed: int = 1,
    family: Family = "4",
    clocks: ClockKind = "disciplined",
) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Raises:
        LabError: the lab or its processes failed.
    """
    spec = None if name else LabSpec(name=RUN_NAME, seed=seed, clocks=clocks)
    probes = msgspec.structs.replace(LAB_PROBES, family=family)
    with lab_for_run(name or RUN_NAME, spec) as lab, Fleet(lab, probes) as fleet, Truth(lab) as truth:
        start = wait_for_lock(fleet, truth)
        progress(f"all clocks within 1 us {start.locked_s:.2f} s after the first probe")
        with Traffic(lab, share, settle_s + seconds) as traffic:
            progress(f"settling for {settle_s:.0f} s")
            time.sleep(settle_s)
            progress(f"measuring for {seconds:.0f} s")
            states = _States(fleet)
            error, bound = sample(truth, seconds, fleet, states.note)
            synced = np.array(states.synced)
            sent = traffic.result()
        return {
            "lab": {
                "leaves": lab.spec.leaves,
                "spines": lab.spec.spines,
                "hosts": len(lab.hosts),
                "clocks": lab.spec.clocks,
            },
            "settle_s": settle_s,
            "seconds": seconds,
            "cold_start": asdict(start),
            "load": {"share": share, "sent": sent},
            "hosts": [
                {"host": host.name, **summary(error[:, i], bound[:, i], synced[:, i])}
                for i, host in enumerate(lab.hosts)
            ],
            "all": summary(error.ravel(), bound.ravel(), synced.ravel()),
            "restarts": fleet.restarts,
        }


class _States:
    """Which hosts are synced at each sample, as the manager says; none while it does not answer."""

    def __init__(self, fleet: Fleet) -> None:
        self.synced: list[list[bool]] = []
        self._client = ManagerClient(f"unix://{fleet.socket}")
        self._hosts = [host.name for host in fleet.lab.hosts]
        self._due_s = 0.0

    def note(self, _: Reading) -> None:
        """Take down what holds now."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            self.synced.append(self.synced[-1])
            return
        self._due_s = now_s + ASKED_EVERY_S
        try:
            clocks = self._client.get("/v1/clock")["hosts"]
        except ManagerError:
            clocks = []
        among = {clock["host"] for clock in clocks if clock["state"] == "synced"}
        self.synced.append([host in among for host in self._hosts])


def summary(
    error_ns: NDArray[np.float64], bound_ns: NDArray[np.float64], synced: NDArray[np.bool_]
) -> dict[str, Any]:
    """Quantiles of the absolute error, the bound claimed, and how often the truth lay outside it.

    Samples in which the host claimed no bound at all are counted apart, as `unsynced_share`. What is claimed while a
    host is in holdover is told from what is claimed while it is synced.

    Args:
        error_ns: of each sample, shape (n,).
        bound_ns: that was claimed, shape (n,); NaN for none.
        synced: the host's state then, shape (n,).
    """
    claimed = ~np.isnan(bound_ns)
    error, bound = np.abs(error_ns[claimed]), bound_ns[claimed]
    if not len(error):
        return {"samples": 0, "unsynced_share": 1.0, "synced_share": 0.0, "synced_outside_share": None}
    outside, sure = error > bound, synced[claimed]
    p50, p99 = np.percentile(error, (50, 99))
    return {
        "samples": len(error),
        "unsynced_share": float(1 - claimed.mean()),
        "synced_share": float((synced & claimed).mean()),
        "p50_ns": round(float(p50), 3),
        "p99_ns": round(float(p99), 3),
        "max_ns": round(float(error.max()), 3),
        "bound_p50_ns": round(float(np.median(bound)), 3),
        "bound_max_ns": round(float(bound.max()), 3),
        "outside_share": float(outside.mean()),
        "synced_outside_share": float(outside[sure].mean()) if sure.any() else None,
    }


def _render(result: dict[str, Any]) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for column in ("HOST", "P50 NS", "P99 NS", "MAX NS", "BOUND NS", "MAX BOUND NS", "OUTSIDE"):
        table.add_column(column, justify="left" if column == "HOST" else "right")
    for row in [*result["hosts"], {"host": "all", **result["all"]}]:
        if not row["samples"]:
            table.add_row(row["host"], *["-"] * 5, "unsynced")
            continue
        numbers = (
            f"{row[key]:.1f}" for key in ("p50_ns", "p99_ns", "max_ns", "bound_p50_ns", "bound_max_ns")
        )
        table.add_row(row["host"], *numbers, f"{row['outside_share']:.2%}")
    start, sent, every = result["cold_start"], result["load"]["sent"], result["all"]
    outside = every["synced_outside_share"]
    then = "" if outside is None else f"; then {outside:.2%} outside the bound"
    load = f"load {sent['measured_share']:.0%} of every host's link" if sent else "idle"
    return Group(
        table,
        f"clocks {result['lab']['clocks']}, {load}; {every['samples']} samples in {result['seconds']:.0f} s",
        f"synced in {every['synced_share']:.2%} of all samples{then}",
        f"cold start: clocks {start['offsets_ns'] / 1e9:.1f} s apart, "
        f"within 1 us {start['locked_s']:.2f} s after the first probe",
    )
