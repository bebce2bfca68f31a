"""`python -m tools.lab.traffic.keeper`: keeps traffic of no job in a lab, over many source ports."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import click

from tools.lab import parts
from tools.lab.fleet.session import Traffic
from tools.lab.lab import Lab
from tools.lab.params import SHARE

BACKGROUND = "background"
FOREVER_S = 1e9
PORT = 9
"""Discard (RFC 863): no queue pairs', so it belongs to no job."""

FRAME_BYTES = 1000


def start(name: str, load: float) -> None:
    """Start traffic that stays, of a share of each host's link. Raises what `parts.start` raises."""
    parts.start(name, BACKGROUND, "tools.lab.traffic.keeper", ["--load", str(load)])


@click.command()
@click.option("--name", required=True)
@click.option("--load", type=SHARE, required=True)
def main(name: str, load: float) -> None:
    """Keep traffic in a lab."""
    parts.keep(name, BACKGROUND, f"{load:.0%} of each host's link, of no job", partial(_filling, load=load))


@contextmanager
def _filling(lab: Lab, *, load: float) -> Iterator[dict[str, Any]]:
    with Traffic(lab, load, FOREVER_S, "--port", str(PORT), "--frame", str(FRAME_BYTES)):
        yield {}


if __name__ == "__main__":
    main()
