"""`cwdp lab`: the fabric in namespaces, from the command line."""

import os

import click

from cwdp.errors import LabError
from tools.lab import lifecycle, netns, units
from tools.lab.lab import Lab
from tools.lab.params import RATE
from tools.lab.topology import LabSpec

_DEFAULT = LabSpec()
_name_option = click.option("--name", default=_DEFAULT.name, show_default=True, help="The lab's name.")


@click.group()
def lab() -> None:
    """Raise, break, mend and remove a leaf-spine fabric in network namespaces (needs root)."""


@lab.group()
def run() -> None:
    """Run an experiment in a lab."""


@lab.command()
@_name_option
@click.option("--leaves", default=_DEFAULT.leaves, show_default=True, help="Leaf switches.")
@click.option("--spines", default=_DEFAULT.spines, show_default=True, help="Spine switches.")
@click.option("--hosts", default=_DEFAULT.hosts_per_leaf, show_default=True, help="Hosts per leaf.")
@click.option("--nics", default=_DEFAULT.nics, show_default=True, help="NICs per host, each to another leaf.")
@click.option("--rate", type=RATE, default="200mbit", show_default=True, help="Rate of the hosts' links.")
@click.option("--spine-rate", type=RATE, help="Rate of the leaf-spine links.  [default: as --rate]")
@click.option(
    "--queue", default="256kb", show_default=True, help="Queue of each port, as a size or a time (5ms)."
)
@click.option("--mtu", default=_DEFAULT.mtu, show_default=True, help="MTU of the fabric in bytes.")
@click.option("--seed", default=_DEFAULT.seed, show_default=True, help="Draws the hosts' clocks.")
def up(
    *,
    name: str,
    leaves: int,
    spines: int,
    hosts: int,
    nics: int,
    rate: int,
    spine_rate: int | None,
    queue: str,
    mtu: int,
    seed: int,
) -> None:
    """Raise a lab. The same lab twice is one lab."""
    spec = LabSpec(
        name=name,
        leaves=leaves,
        spines=spines,
        hosts_per_leaf=hosts,
        nics=nics,
        rate_bps=rate,
        spine_rate_bps=spine_rate or rate,
        queue_bytes=units.parse_queue(queue, rate),
        spine_queue_bytes=units.parse_queue(queue, spine_rate or rate),
        mtu=mtu,
        seed=seed,
    )
    if lifecycle.up(spec):
        click.echo(f"The lab {name!r} is up: {leaves * hosts} hosts, {leaves} leaves, {spines} spines.")
    else:
        click.echo(f"The lab {name!r} is already up and complete.")


@lab.command()
@_name_option
def down(name: str) -> None:
    """Remove a lab and all that it made and started."""
    if lifecycle.down(name):
        click.echo(f"The lab {name!r} is gone.")
    else:
        click.echo(f"There is no lab {name!r}: nothing to do.")


@lab.command("exec", context_settings={"ignore_unknown_options": True})
@_name_option
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(name: str, node: str, command: tuple[str, ...]) -> None:
    """Run COMMAND in the network namespace of NODE (h1, l1, s1, mgmt); nothing but the network changes."""
    netns.enter_for_good(Lab.open(name).netns(node))
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise LabError(
            f"cannot run {command[0]!r}: {error.strerror}", "Check the command's name and path."
        ) from error
