"""The options of commands that take `--collective`, and how tables write what they chose."""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import click

from tools.experiments.collectives.jobs import SETTLE_S
from tools.experiments.report import ms
from tools.lab.params import SHARE, SIZE, TIME
from tools.roce.collective.steps import COLLECTIVES
from tools.roce.jobs import JOBS

OPTION_NAMES = ("jobs", "buffer_bytes", "compute_s", "jitter")
"""Of those that mean nothing without `--collective`."""


def options(
    instead_of: str, *, jobs: int = JOBS, compute: str = "400ms"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of collectives, with these defaults.

    Args:
        instead_of: what the command sends without `--collective`.
        jobs: how many.
        compute: see `--compute`.
    """
    made = [
        click.option(
            "--collective",
            type=click.Choice(list(COLLECTIVES)),
            help=f"Jobs whose steps wait for their inputs, instead of {instead_of}.",
        ),
        click.option("--jobs", type=click.IntRange(min=1), default=jobs, show_default=True, help="How many."),
        click.option(
            "--bytes", "buffer_bytes", type=SIZE, default="750kb", show_default=True, help="Of each rank."
        ),
        click.option(
            "--compute",
            "compute_s",
            type=TIME,
            default=compute,
            show_default=True,
            help="What a rank computes in an iteration.",
        ),
        click.option(
            "--jitter",
            type=SHARE,
            default="5%",
            show_default=True,
            help="It computes longer or shorter by up to this share.",
        ),
    ]
    return lambda command: reduce(lambda wrapped, option: option(wrapped), reversed(made), command)


def settled_seconds(seconds: float | None, default: float) -> float:
    """How long to run, of `--seconds`.

    Raises:
        UsageError: no iteration would count.
    """
    if seconds is not None and seconds <= SETTLE_S:
        raise click.UsageError(
            f"{seconds:g} s of collectives, of which the first {SETTLE_S:.0f} do not count: give more."
        )
    return seconds or default


def describe_jobs(result: Mapping[str, Any]) -> str:
    """What ran, from a result that has `Jobs.describe`, for the line below a table."""
    jobs = result["jobs"]
    return (
        f"{jobs} {'job' if jobs == 1 else 'jobs'}, {result['collective']} of {result['buffer_bytes']} bytes, "
        f"compute {ms(result['compute_ns'])} ms"
    )
