"""`cwdp lab run play`: a fabric with a fleet and two jobs that stays up, to be broken and mended by hand."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from cwdp.cli.output import progress
from cwdp.errors import LabError
from tools.clocks import ClockKind
from tools.lab import Lab, LabSpec, lifecycle, parts, process, state
from tools.lab.fleet import cli as fleets
from tools.lab.params import CLOCKS
from tools.lab.traffic import keeper as background
from tools.roce import job_cli as jobs
from tools.roce.jobs import interleaved

LEAVES, SPINES, HOSTS_PER_LEAF = 4, 4, 2
RATE_BPS, SPINE_RATE_BPS = 40_000_000, 16_000_000
QUEUE_BYTES = 40 * 1024
"""Even a link of 1 Mbit/s empties it before the probes in it are taken for lost."""

MTU = 4200
JOB_LOAD, BACKGROUND_LOAD = 0.3, 0.01
POLL_S = 0.5


@dataclass(frozen=True)
class Story:
    """Something to try: what to look for, the commands that bring it about, and those that undo it."""

    told: str
    make: tuple[str, ...]
    undo: tuple[str, ...]


STORIES = (
    Story(
        "a link drops everything and keeps its carrier",
        ("lab cut l1-s2 --silent",),
        ("lab heal l1-s2",),
    ),
    Story("a link loses 2 % of its packets", ("lab cut l2-s3 --loss 2%",), ("lab heal l2-s3",)),
    Story("a link is slow", ("lab cut l4-s1 --rate 3mbit",), ("lab heal l4-s1",)),
    Story(
        "a host is slow to send",
        ("lab cut h3-l2 --rate 1400kbit --direction 'h3>l2'",),
        ("lab heal h3-l2",),
    ),
    Story(
        "a host is slow to receive",
        ("lab cut h6-l3 --rate 1400kbit --direction 'l3>h6'",),
        ("lab heal h6-l3",),
    ),
    Story(
        "a third job, by which the two become one in cwdp's eyes",
        ("lab job up C --hosts h1,h4,h6,h7",),
        ("lab job down C",),
    ),
    Story(
        "two jobs collide on one link",
        (
            "lab job up D --hosts h1,h3 --load 30% --over s4",
            "lab job up E --hosts h2,h4 --load 30% --over s4",
        ),
        ("lab job down D", "lab job down E"),
    ),
)
LOOK = ("top", "link --watch", "event --since 5m", "lab status")


@dataclass(frozen=True)
class Play:
    """What is up: the page's address, the manager's socket, the lab."""

    url: str
    socket: Path
    lab: Lab


@contextmanager
def playing(
    name: str = LabSpec().name,
    *,
    page: str = fleets.DEFAULT_PAGE,
    planner: bool = True,
    seed: int = 1,
    clocks: ClockKind = "disciplined",
) -> Iterator[Play]:
    """A lab with a fleet, two jobs and other traffic; all of it goes at the end.

    Args:
        name: of the lab.
        page: HOST:PORT of this machine where the page is served.
        planner: let the manager move queue pairs by itself.
        seed: draws the hosts' clocks.
        clocks: their kind.

    Raises:
        LabError: a lab has this name already, or a part did not come up.
    """
    spec = LabSpec(
        name=name,
        leaves=LEAVES,
        spines=SPINES,
        hosts_per_leaf=HOSTS_PER_LEAF,
        rate_bps=RATE_BPS,
        spine_rate_bps=SPINE_RATE_BPS,
        queue_bytes=QUEUE_BYTES,
        spine_queue_bytes=QUEUE_BYTES,
        mtu=MTU,
        seed=seed,
        clocks=clocks,
    )
    _raise(spec)
    try:
        progress("starting a manager and an agent on each host")
        fleet = fleets.start(name, planner=planner, page=page)
        progress(f"clocks agreed after {fleet.after_s:.1f} s; starting two jobs")
        lab = Lab.open(name)
        for job in interleaved([host.name for host in lab.hosts]):
            jobs.start(name, job.name, job.members, JOB_LOAD)
        background.start(name, BACKGROUND_LOAD)
        yield Play(fleet.page_url, fleet.socket, lab)
    finally:
        with process.undisturbed():
            lifecycle.down(name)


def _raise(spec: LabSpec) -> None:
    progress(f"raising the lab {spec.name!r}: {spec.describe()}")
    known = state.load(spec.name)
    if known is not None or not lifecycle.up(spec):
        there = ", ".join(part.name for part in parts.standing(known)) if known else ""
        raise LabError(
            f"the lab {spec.name!r} is up already" + (f", with {there}" if there else ""),
            f"Take it down with `cwdp lab down --name {spec.name}`, or by ctrl-c where `cwdp lab run play` runs; or give "
            "this one another --name and --page.",
        )


@click.command()
@click.option("--seed", default=1, show_default=True, help="Draws the hosts' clocks.")
@fleets.name_option
@fleets.planner_option
@fleets.page_option
@CLOCKS
def play(seed: int, name: str, planner: bool, page: str, clocks: ClockKind) -> None:
    """Raise a fabric with a fleet and two jobs to look at, to break and to mend; stays until ctrl-c."""
    process.end_on_signals()
    try:
        with playing(name, page=page, planner=planner, seed=seed, clocks=clocks) as up:
            click.echo(_what_to_try(up))
            _stay(name)
    except KeyboardInterrupt:
        progress(f"took the lab {name!r} away")


def _stay(name: str) -> None:
    """Until somebody interrupts, or takes the lab or its fleet away.

    Raises:
        LabError: the lab is gone.
    """
    while state.load(name) is not None:
        time.sleep(POLL_S)
    raise LabError(f"the lab {name!r} was taken away", "Start it again with `cwdp lab run play`.")


def _what_to_try(up: Play) -> str:
    """The page's address, and commands that work when they are pasted into another terminal."""
    leaf, spine = (up.lab.topology.router_addresses(switch)[0] for switch in ("l1", "s2"))
    lines = [
        f"\nThe fabric is up: {up.url}",
        f"Switches are known by their addresses: l1 is {leaf}, s2 is {spine}.",
        "\nTo look at it without the page, in another terminal:",
    ]
    lines += [f"    {_pasted(one, up)}" for one in LOOK]
    for story in STORIES:
        lines.append(f"\n{story.told}, and back:")
        lines += [f"    {_pasted(one, up)}" for one in (*story.make, *story.undo)]
    lines.append("\nctrl-c takes everything away.")
    return "\n".join(lines)


def _pasted(arguments: str, up: Play) -> str:
    """A command as a shell takes it, run as this one was."""
    program = Path(sys.argv[0])
    called = str(program) if program.name == "cwdp" and "/" in str(program) else "cwdp"
    sudo = "sudo " if "SUDO_USER" in os.environ else ""
    where = ""
    if up.lab.name != LabSpec().name:
        is_of_lab = arguments.startswith("lab ")
        where = f" --name {up.lab.name}" if is_of_lab else f" --manager unix://{up.socket}"
    return f"{sudo}{called} {arguments}{where}"
