"""`cwdp lab run causes`: what slows a job is done to it, and `cwdp why` is asked."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
from rich.console import Group, RenderableType

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import emit, progress
from cwdp.errors import LabError, ManagerError
from cwdp.shared.bus.messages import host_of
from tools.experiments.causes.model import (
    KINDS,
    LEFT,
    LOSS,
    Kind,
    Setting,
    Trouble,
    Verdict,
    draw,
    judge,
    summarise,
)
from tools.experiments.fleets import running_fleet
from tools.experiments.options import JSON, fabric_options
from tools.experiments.report import describe_lab, new_table
from tools.lab import Lab, LabSpec, faults, processor
from tools.lab.fleet.session import lab_for_run
from tools.lab.params import CLOCKS, SHARE, SIZE, TIME
from tools.roce.collective.plan import Plan
from tools.roce.collective.steps import COLLECTIVES
from tools.roce.generator import Generator
from tools.waiting import wait_for

NAME = "causes"
HOSTS, SPINES = 4, 2
RATE_BPS = 100_000_000
KNOWN_WITHIN_S = 40.0
STEADY_S = 10.0
"""For so long a job runs once its iterations are known, before something is done to it."""

FORGOTTEN_S = 34.0
"""Bursts of the job before count for 30 s."""

POLL_S = 0.5


@click.command("causes")
@click.option(
    "--seed", default=1, show_default=True, help="Draws hosts, links, queue pairs; the first of --seeds."
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="So many cases of each cause."
)
@click.option("--cause", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this one.")
@click.option("--collective", type=click.Choice(list(COLLECTIVES)), default="ring", show_default=True)
@click.option("--bytes", "buffer_bytes", type=SIZE, default="2mb", show_default=True, help="Of each rank.")
@click.option(
    "--compute", "compute_s", type=TIME, default="300ms", show_default=True, help="Of an iteration."
)
@click.option("--jitter", type=SHARE, default="3%", show_default=True, help="Of what a rank computes.")
@click.option(
    "--within",
    "within_s",
    type=TIME,
    default="10s",
    show_default=True,
    help="In time is what is told by then.",
)
@click.option(
    "--watch", "watch_s", type=TIME, default="30s", show_default=True, help="How long each case goes on."
)
@fabric_options(NAME, hosts=HOSTS, spines=SPINES, rate_bps=RATE_BPS, rate_of="Of all links.")
@CLOCKS
@JSON
def causes(
    *,
    spec: LabSpec,
    seed: int,
    seeds: int,
    kinds: tuple[Kind, ...],
    collective: str,
    buffer_bytes: int,
    compute_s: float,
    jitter: float,
    within_s: float,
    watch_s: float,
    as_json: bool,
) -> None:
    """Slow a job down in each way that is known, and see what `cwdp why` makes of it and when."""
    setting = Setting(collective, buffer_bytes, compute_s, jitter)
    chosen = [kind for kind in KINDS if not kinds or kind in kinds]
    result = run_causes(spec, setting, chosen, range(seed, seed + seeds), (within_s, watch_s))
    emit(result, as_json=as_json, render=lambda: _render(result))


def run_causes(
    spec: LabSpec, setting: Setting, kinds: Sequence[Kind], seeds: Sequence[int], times_s: tuple[float, float]
) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Args:
        spec: of the lab.
        setting: what runs in it.
        kinds: what is done, one after the other for each seed.
        seeds: of the cases.
        times_s: within which a cause has to be told, and for which it is waited for.

    Raises:
        LabError: the lab or its processes failed.
    """
    verdicts: list[Verdict] = []
    with lab_for_run(NAME, spec) as lab, running_fleet(lab, planner=True) as fleet:
        client = ManagerClient(f"unix://{fleet.socket}")
        for seed in seeds:
            for kind in kinds:
                trouble = draw(kind, lab.topology, seed)
                verdicts.append(_case(lab, client, setting, trouble, times_s))
                progress(f"seed {seed}, {kind}: {_shown(verdicts[-1])}")
                fleet.check()
                time.sleep(FORGOTTEN_S)
    return {
        "lab": describe_lab(lab, spec),
        **asdict(setting),
        "within_s": times_s[0],
        "kinds": [summarise(kind, verdicts) for kind in kinds],
        "cases": [asdict(each) for each in verdicts],
    }


def _case(
    lab: Lab, client: ManagerClient, setting: Setting, trouble: Trouble, times_s: tuple[float, float]
) -> Verdict:
    within_s, watch_s = times_s
    mine, other = setting.plans(lab.topology, trouble)
    with _running(lab, mine):
        started_s = time.time()
        known_s = _wait_until_known(client)
        is_rank = trouble.kind in ("compute", "stall")
        used = 0.0 if is_rank else _steadily(lab, trouble)
        since_s = started_s if trouble.kind == "healthy" else known_s if is_rank else time.time()
        with _troubled(lab, trouble, other, used):
            time.sleep(watch_s)
            told = client.get("/v1/causes", {})["causes"]
    seen = started_s if is_rank else since_s
    rows = [row | {"start_s": max(row["start_s"], since_s)} for row in told if row["start_s"] >= seen]
    return judge(trouble, lab.topology, rows, since_s, within_s)


def _wait_until_known(client: ManagerClient) -> float:
    """Wait for a job with iterations; when it was there, since 1970.

    Raises:
        LabError: it takes too long.
    """
    if not wait_for(lambda: _is_known(client), KNOWN_WITHIN_S, poll_s=POLL_S):
        raise LabError("no job was inferred", "Is the machine overloaded? `cwdp job` shows what is.")
    return time.time()


def _is_known(client: ManagerClient) -> bool:
    try:
        return any(job["usual_ns"] for job in client.get("/v1/causes", {})["jobs"])
    except ManagerError:  # it does not lead yet
        return False


@contextmanager
def _running(lab: Lab, plan: Plan) -> Iterator[None]:
    with Generator(plan.flows, lab.popen, lab.run_dir, ranks=plan.ranks) as generator:
        generator.start()
        yield
        generator.stop()


def _steadily(lab: Lab, trouble: Trouble) -> float:
    """Let a job run for a while; how much of a processor its host with trouble uses, if it is about processors."""
    host = host_of(trouble.nic) if trouble.kind == "processor" else ""
    before_s = processor.used_s(lab.name, host) if host else 0.0
    time.sleep(STEADY_S)
    return (processor.used_s(lab.name, host) - before_s) / STEADY_S if host else 0.0


@contextmanager
def _troubled(lab: Lab, trouble: Trouble, other: Plan, used: float) -> Iterator[None]:
    if trouble.kind == "rival":
        with _running(lab, other):
            yield
        return
    if trouble.kind == "processor":
        processor.limit(lab.name, host_of(trouble.nic), LEFT * used)
    if trouble.kind == "nic":
        faults.slow(lab.name, trouble.link, lab.spec.rate_bps // 2)
    elif trouble.kind in ("loss", "cut"):
        faults.drop(lab.name, trouble.link, LOSS if trouble.kind == "loss" else 1.0)
    try:
        yield
    finally:
        if trouble.kind == "processor":
            processor.limit(lab.name, host_of(trouble.nic), None)
        if trouble.link:
            faults.heal(lab.name, trouble.link, convergence_s=0)


def _shown(verdict: Verdict) -> str:
    after = "" if verdict.after_s is None else f" after {verdict.after_s:.1f} s"
    return f"{verdict.outcome}{after}; said: {', '.join(verdict.said) or 'nothing'}"


def _render(result: dict[str, Any]) -> RenderableType:
    table = new_table("CAUSE", ("CASES", "RIGHT", "LATE", "MISSED", "WRONG", "OTHERS", "P50 S", "MAX S"))
    for row in result["kinds"]:
        numbers = (row[key] for key in ("cases", "right", "late", "missed", "wrong", "others"))
        times = ("-" if row[key] is None else f"{row[key]:.1f}" for key in ("after_p50_s", "after_max_s"))
        table.add_row(row["kind"], *map(str, numbers), *times)
    text = f"RIGHT: told within {result['within_s']:.0f} s; OTHERS: causes told that were not there, besides unknown"
    return Group(table, text)
