"""`cwdp lab run causes`: what slows a job is done to it, and `cwdp why` is asked."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.console import Group, RenderableType

from cwdp.cli.client import ManagerClient
from cwdp.cli.output import emit, progress
from tools.experiments.causes.cases import Cases, Times
from tools.experiments.causes.model import KINDS, OUTCOMES, Kind, Setting, Verdict, summarise
from tools.experiments.fleets import running_fleet
from tools.experiments.options import JSON, fabric_options
from tools.experiments.report import describe_lab, new_table
from tools.lab import LabSpec
from tools.lab.fleet.session import lab_for_run
from tools.lab.params import CLOCKS, SHARE, SIZE, TIME
from tools.roce.collective.steps import COLLECTIVES

NAME = "causes"
HOSTS, SPINES = 4, 2
RATE_BPS = 100_000_000


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
    "--watch",
    "watch_s",
    type=TIME,
    default="30s",
    show_default=True,
    help="How long each case goes on at most.",
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
    result = run_causes(spec, setting, chosen, range(seed, seed + seeds), Times(within_s, watch_s))
    emit(result, as_json=as_json, render=lambda: _render(result))


def run_causes(
    spec: LabSpec, setting: Setting, kinds: Sequence[Kind], seeds: Sequence[int], times: Times
) -> dict[str, Any]:
    """Run the experiment; what `--json` prints.

    Args:
        spec: of the lab.
        setting: what runs in it.
        kinds: what is done, one after the other for each seed.
        seeds: of the cases.
        times: of each case.

    Raises:
        LabError: the lab or its processes failed.
    """
    verdicts: list[Verdict] = []
    with lab_for_run(NAME, spec) as lab, running_fleet(lab, planner=True) as fleet:
        client = ManagerClient(f"unix://{fleet.socket}")
        cases = Cases(lab, client, setting, times)
        for seed in seeds:
            for verdict in cases.of_seed(seed, kinds):
                verdicts.append(verdict)
                progress(f"seed {seed}, {verdict.trouble.kind}: {_shown(verdict)}")
                fleet.check()
    return {
        "lab": describe_lab(lab, spec),
        **asdict(setting),
        "within_s": times.within_s,
        "kinds": [summarise(kind, verdicts) for kind in kinds],
        "cases": [asdict(each) for each in verdicts],
    }


def _shown(verdict: Verdict) -> str:
    after = "" if verdict.after_s is None else f" after {verdict.after_s:.1f} s"
    share, slow_s = verdict.meanwhile.longer, verdict.meanwhile.slow_after_s
    longer = "" if share is None else f", iterations {share:+.0%}"
    slow = "" if slow_s is None else f", slow after {slow_s:.1f} s"
    return f"{verdict.outcome}{after}{longer}{slow}; said: {', '.join(verdict.said) or 'nothing'}"


def _render(result: dict[str, Any]) -> RenderableType:
    columns = "cases", *OUTCOMES, "others"
    table = new_table("CAUSE", (*(name.upper() for name in columns), "P50 S", "MAX S"))
    for row in result["kinds"]:
        numbers = (row[key] for key in columns)
        times = ("-" if row[key] is None else f"{row[key]:.1f}" for key in ("after_p50_s", "after_max_s"))
        table.add_row(row["kind"], *map(str, numbers), *times)
    text = (
        f"RIGHT: told within {result['within_s']:.0f} s, of a rival after iterations became longer; SPARED: a rival that cost the job nothing, and nothing told; "
        "OTHERS: causes told that were not there, besides unknown"
    )
    return Group(table, text)
