"""`cwdp lab job`: jobs that send in a lab until they are stopped."""

import re

import click

from cwdp.errors import ConfigError
from tools.lab import parts
from tools.lab.lab import Lab
from tools.lab.params import SHARE
from tools.lab.topology import LabSpec
from tools.roce.job_keeper import check_members, part

DEFAULT_LOAD = "20%"

_NAME_PATTERN = re.compile(r"[A-Za-z0-9]{1,16}")
_name_option = click.option("--name", default=LabSpec().name, show_default=True, help="The lab's name.")


def start(name: str, job: str, members: tuple[str, ...], load: float, over: str = "") -> int:
    """Start a job that stays; how many queue pairs it has.

    Args:
        name: of the lab.
        job: its name.
        members: hosts, each of which sends to each other.
        load: what each sends, as a share of its link.
        over: the spine over which ECMP is to lead all of it; else where its ports happen to lead.

    Raises:
        ConfigError: no such job can be.
        LabError: there is no such lab, host or spine, or the job is up already.
    """
    if not _NAME_PATTERN.fullmatch(job):
        raise ConfigError(f"{job!r} is not a name for a job", "Use up to 16 letters and digits.")
    lab = Lab.open(name)
    check_members(lab, members, over)
    arguments = ["--job", job, "--members", ",".join(members), "--load", str(load), "--over", over]
    return int(parts.start(name, part(job), "tools.roce.job_keeper", arguments)["queue_pairs"])


@click.group()
def job() -> None:
    """All-to-all jobs of real RoCEv2 queue pairs, which send until `down`."""


@job.command()
@click.argument("job")
@_name_option
@click.option("--hosts", default="", metavar="H1,H2,...", help="Its members.  [default: all hosts]")
@click.option(
    "--load", type=SHARE, default=DEFAULT_LOAD, show_default=True, help="What each sends, of its link."
)
@click.option(
    "--over", default="", metavar="SPINE", help="Draw source ports by which ECMP leads all over this spine."
)
def up(job: str, name: str, hosts: str, load: float, over: str) -> None:
    """Start JOB: each of its hosts writes to each other."""
    members = tuple(hosts.replace(",", " ").split()) or tuple(host.name for host in Lab.open(name).hosts)
    count = start(name, job, members, load, over)
    click.echo(f"The job {job!r} sends: {count} queue pairs between {', '.join(members)}.")


@job.command()
@click.argument("job")
@_name_option
def down(job: str, name: str) -> None:
    """Stop JOB."""
    if parts.stop(name, part(job)):
        click.echo(f"The job {job!r} is gone.")
    else:
        click.echo(f"No job {job!r} stands in the lab {name!r}: nothing to do.")
