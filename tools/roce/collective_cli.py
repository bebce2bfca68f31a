"""The part of `cwdp lab traffic` that runs a collective."""

import re
import time
from collections.abc import Callable
from functools import reduce
from typing import Any

import click

from cwdp.cli.output import progress
from cwdp.errors import ConfigError
from tools.lab import units
from tools.lab.lab import Lab
from tools.lab.params import SHARE, TIME, Quantity
from tools.roce.collective.plan import job_communicators, plan_collective, rank_ends
from tools.roce.collective.rank import Stall
from tools.roce.collective.results import collective_result
from tools.roce.collective.steps import COLLECTIVES
from tools.roce.flows import largest_mtu
from tools.roce.generator import Generator

_NS_PER_S = 1_000_000_000
_STRAGGLER = re.compile(r"(\S+?):(\S+)")
_STALL = re.compile(r"(\S+?):(\S+?)/(\S+)")


def _parse_straggler(text: str) -> tuple[str, float]:
    match = _STRAGGLER.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} names no straggler", "Give HOST/NIC:SHARE, such as h3/nic0:20%.")
    return match[1], units.parse_share(match[2])


def _parse_stall(text: str) -> tuple[str, Stall]:
    match = _STALL.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} names no stall", "Give HOST/NIC:TIME/EVERY, such as h3/nic0:50ms/1s.")
    stall_ns, every_ns = (round(units.parse_time(part) * _NS_PER_S) for part in match.groups()[1:])
    return match[1], Stall(stall_ns, every_ns)


_OPTIONS = [
    click.option(
        "--collective",
        type=click.Choice(list(COLLECTIVES)),
        help="Instead of PATTERN: iterations of all ranks, one a NIC, each of whose steps waits for its inputs.",
    ),
    click.option(
        "--compute", "compute_s", type=TIME, default="0s", help="What a rank computes per iteration."
    ),
    click.option(
        "--jitter", type=SHARE, default="0%", help="It computes longer or shorter by up to this share."
    ),
    click.option("--iterations", type=click.IntRange(min=1), help="How many, instead of for a time."),
    click.option(
        "--tensor",
        type=click.IntRange(min=1),
        default=1,
        help="Every so many neighbouring hosts do a ring first, and the collective is between their groups.",
    ),
    click.option(
        "--straggler",
        "stragglers",
        type=Quantity("straggler", _parse_straggler),
        multiple=True,
        metavar="HOST/NIC:SHARE",
        help="A rank that computes longer by this share; may be given several times.",
    ),
    click.option(
        "--stall",
        "stalls",
        type=Quantity("stall", _parse_stall),
        multiple=True,
        metavar="HOST/NIC:TIME/EVERY",
        help="A rank that takes no notice of what arrives for a time every so often, such as h3/nic0:50ms/1s.",
    ),
]
OPTION_NAMES = ("compute_s", "jitter", "iterations", "tensor", "stragglers", "stalls")
"""Of those that mean nothing without `--collective`."""


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a collective."""
    return reduce(lambda wrapped, option: option(wrapped), reversed(_OPTIONS), command)


def run(
    lab: Lab,
    collective: str,
    buffer_bytes: int,
    seconds: float | None,
    snapshots: float | None,
    *,
    ipv6: bool,
    compute_s: float,
    tensor: int,
    stragglers: tuple[tuple[str, float], ...],
    stalls: tuple[tuple[str, Stall], ...],
    **settings: Any,
) -> dict[str, Any]:
    """Run a job on all NICs of a lab; return its times and what its queue pairs did.

    Args:
        lab: a lab that is up.
        collective: one of `COLLECTIVES`.
        buffer_bytes: of each rank.
        seconds: how long; None for until all iterations are done.
        snapshots: seconds between the points of the timeline, None for no timeline.
        ipv6: send IPv6.
        compute_s: what a rank computes in an iteration.
        tensor: hosts in a tensor-parallel group.
        stragglers: ranks that compute longer, and by which share.
        stalls: ranks that stand still, and when.
        settings: further ones of `plan_collective`.
    """
    communicators = job_communicators(
        lab.topology,
        collective,
        buffer_bytes=buffer_bytes,
        compute_ns=round(compute_s * _NS_PER_S),
        tensor=tensor,
    )
    ends = rank_ends(lab.topology, ipv6=ipv6)
    plan = plan_collective(
        ends,
        communicators,
        stragglers=dict(stragglers),
        stalls=dict(stalls),
        mtu=largest_mtu(lab.spec.mtu),
        **settings,
    )
    with Generator(plan.flows, lab.popen, lab.run_dir, snapshots, ranks=plan.ranks) as generator:
        progress(f"{len(plan.ranks)} ranks, {len(plan.flows)} queue pairs over {len(lab.hosts)} hosts")
        generator.start()
        result = _outcome(generator, seconds)
        return {"collective": collective} | result | collective_result(plan, generator.iterations())


def _outcome(generator: Generator, seconds: float | None) -> dict[str, Any]:
    """What queue pairs did, after some seconds or once all iterations are done."""
    if seconds is None:
        return generator.result()
    time.sleep(seconds)
    return generator.stop()
