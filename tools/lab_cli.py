"""`cwdp lab`: the fabric in namespaces, from the command line."""

import os

import click

from cwdp.cli.output import emit
from cwdp.errors import LabError
from tools.clocks import ClockKind
from tools.experiments.causes.run import causes
from tools.experiments.contention.run import contention
from tools.experiments.demo import demo
from tools.experiments.failover.run import failover
from tools.experiments.ib_faults.run import ib_faults
from tools.experiments.incast.run import incast
from tools.experiments.nic_failover.run import nic_failover
from tools.experiments.play import play
from tools.experiments.slices.run import slices
from tools.experiments.sync import sync
from tools.experiments.tcp.contention_run import tcp_contention
from tools.experiments.tcp.failover_run import tcp_failover
from tools.ib.lab.cli import ib
from tools.lab import faults, lifecycle, partition, processor, units
from tools.lab import status as report
from tools.lab.fleet.cli import fleet
from tools.lab.lab import Lab
from tools.lab.network import netns
from tools.lab.params import CLOCKS, RATE, SHARE, TIME
from tools.lab.topology import LabSpec
from tools.roce.cli import traffic
from tools.roce.job_cli import job

_DEFAULT = LabSpec()
_name_option = click.option("--name", default=_DEFAULT.name, show_default=True, help="The lab's name.")
_convergence_option = click.option(
    "--convergence", type=TIME, default="50ms", show_default=True, help="Time until the switches route anew."
)


@click.group()
def lab() -> None:
    """Raise, break, mend and remove a fabric of leaves, spines and cores in network namespaces (needs root)."""


@lab.group()
def run() -> None:
    """Run an experiment in a lab."""


run.add_command(causes)
run.add_command(contention)
run.add_command(demo)
run.add_command(failover)
run.add_command(ib_faults)
run.add_command(incast)
run.add_command(nic_failover)
run.add_command(play)
run.add_command(slices)
run.add_command(sync)
run.add_command(tcp_contention)
run.add_command(tcp_failover)
lab.add_command(fleet)
lab.add_command(ib)
lab.add_command(job)
lab.add_command(traffic)


@lab.command()
@_name_option
@click.option(
    "--pods", default=_DEFAULT.pods, show_default=True, help="Pods of leaves and spines, joined by cores."
)
@click.option(
    "--leaves",
    type=int,
    help=f"Leaf switches, of each pod.  [default: {_DEFAULT.leaves}; with rails one for each]",
)
@click.option("--spines", default=_DEFAULT.spines, show_default=True, help="Spine switches, of each pod.")
@click.option(
    "--cores",
    default=_DEFAULT.cores,
    show_default=True,
    help="Core switches, each with a link to every spine.",
)
@click.option("--hosts", default=_DEFAULT.hosts_per_leaf, show_default=True, help="Hosts per leaf.")
@click.option("--nics", default=_DEFAULT.nics, show_default=True, help="NICs per host, each to another leaf.")
@click.option(
    "--rails",
    default=_DEFAULT.rails,
    help="NICs per host, each to the leaf of its rail; as many leaves have hosts in common.  [default: none]",
)
@click.option("--rate", type=RATE, default="100mbit", show_default=True, help="Rate of the hosts' links.")
@click.option("--spine-rate", type=RATE, help="Rate of the links between switches.  [default: as --rate]")
@click.option(
    "--queue", default="256kb", show_default=True, help="Queue of each port, as a size or a time (5ms)."
)
@click.option("--mtu", default=_DEFAULT.mtu, show_default=True, help="MTU of the fabric in bytes.")
@click.option("--seed", default=_DEFAULT.seed, show_default=True, help="Draws the hosts' clocks.")
@CLOCKS
@click.option("--managers", default=_DEFAULT.managers, show_default=True, help="Managers of its fleet.")
@click.option("--servers", default=_DEFAULT.servers, show_default=True, help="Bus servers of its fleet.")
@click.option("--miswire", default="", metavar="HOST", help="Plug this host's first NIC into a wrong leaf.")
def up(
    *,
    name: str,
    pods: int,
    leaves: int | None,
    spines: int,
    cores: int,
    hosts: int,
    nics: int,
    rails: int,
    rate: int,
    spine_rate: int | None,
    queue: str,
    mtu: int,
    seed: int,
    clocks: ClockKind,
    managers: int,
    servers: int,
    miswire: str,
) -> None:
    """Raise a lab. The same lab twice is one lab."""
    spec = LabSpec(
        name=name,
        pods=pods,
        leaves=(rails or _DEFAULT.leaves) if leaves is None else leaves,
        spines=spines,
        cores=cores,
        hosts_per_leaf=hosts,
        nics=nics,
        rails=rails,
        rate_bps=rate,
        spine_rate_bps=spine_rate or rate,
        queue_bytes=units.parse_queue(queue, rate),
        spine_queue_bytes=units.parse_queue(queue, spine_rate or rate),
        mtu=mtu,
        seed=seed,
        miswired=miswire,
        clocks=clocks,
        managers=managers,
        servers=servers,
    )
    if lifecycle.up(spec):
        click.echo(f"The lab {name!r} is up: {spec.describe()}.")
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


@lab.command()
@_name_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(name: str, as_json: bool) -> None:
    """Show a lab's nodes, links and counters, and the truth of its clocks."""
    found = report.collect(name)
    emit(found, as_json=as_json, render=lambda: report.render(found))


@lab.command()
@_name_option
@click.argument("link")
@click.option("--silent", is_flag=True, help="Leave the carrier and drop everything.")
@click.option("--loss", type=SHARE, help="Leave the carrier and drop a share, such as 0.5% or 0.005.")
@click.option("--rate", type=RATE, help="Leave the carrier and change the rate.")
@click.option("--mtu", type=int, help="Leave the carrier and change the MTU of a link between switches.")
@click.option("--dscp", type=click.IntRange(0, 63), help="Leave the carrier and give all another DSCP.")
@click.option("--ecn", type=click.IntRange(0, 3), help="The same of ECN; also together with --dscp.")
@click.option("--direction", default=faults.BOTH, show_default=True, help="One way only, such as 'l1>s2'.")
@_convergence_option
def cut(
    *,
    name: str,
    link: str,
    silent: bool,
    loss: float | None,
    rate: int | None,
    mtu: int | None,
    dscp: int | None,
    ecn: int | None,
    direction: str,
    convergence: float,
) -> None:
    """Break LINK (h1-l1, l1-s2, p1s2-c1): take its carrier, or what the options say."""
    is_remarked = dscp is not None or ecn is not None
    one_way = [silent, loss is not None, rate is not None, is_remarked]
    _require_one_fault([*one_way, mtu is not None], may_be_one_way=any(one_way) or direction == faults.BOTH)
    if silent or loss is not None:
        faults.drop(name, link, 1.0 if loss is None else loss, direction)
    elif rate is not None:
        faults.slow(name, link, rate, direction)
    elif mtu is not None:
        faults.narrow(name, link, mtu)
    elif is_remarked:
        faults.remark(name, link, dscp, ecn, direction)
    else:
        faults.cut(name, link, convergence)


def _require_one_fault(chosen: list[bool], *, may_be_one_way: bool) -> None:
    if sum(chosen) > 1:
        raise click.UsageError(
            "--silent, --loss, --rate, --mtu and --dscp or --ecn exclude each other; give one per command."
        )
    if not may_be_one_way:
        raise click.UsageError(
            "A carrier is lost both ways, and so is an MTU; "
            "add --silent, --loss, --rate, --dscp or --ecn to break one direction."
        )


@lab.command()
@_name_option
@click.argument("link")
@_convergence_option
def heal(name: str, link: str, convergence: float) -> None:
    """Undo everything that was done to LINK."""
    faults.heal(name, link, convergence)


@lab.command()
@_name_option
@click.argument("host")
@click.option(
    "--left", type=SHARE, default="5%", show_default=True, help="Of one processor; 100% takes nothing away."
)
def starve(name: str, host: str, left: float) -> None:
    """Leave the processes of HOST but a share of a processor."""
    processor.limit(name, host, left if left < 1.0 else None)


@lab.command()
@_name_option
@click.argument("node")
def isolate(name: str, node: str) -> None:
    """Cut NODE (h1, m1 for a manager, b1 for a bus server) off the management network."""
    partition.isolate(name, node)


@lab.command()
@_name_option
@click.argument("node")
def rejoin(name: str, node: str) -> None:
    """Bring NODE back to the management network."""
    partition.rejoin(name, node)


@lab.command("exec", context_settings={"ignore_unknown_options": True})
@_name_option
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(name: str, node: str, command: tuple[str, ...]) -> None:
    """Run COMMAND in the network namespace of NODE (h1, l1, s1, c1, m1, b1, mgmt); nothing but the network changes."""
    namespace = Lab.open(name).netns(node)
    try:
        netns.enter_for_good(namespace)
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        raise LabError(
            f"cannot run {command[0]!r}: {error.strerror}", "Check its name and path, and that you are root."
        ) from error
