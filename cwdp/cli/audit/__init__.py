"""`cwdp audit`: is every host what it should be, before a job runs."""

import click

from cwdp.cli.audit import commands


@click.group()
def audit() -> None:
    """Whether every host, NIC and GPU is what it should be."""


for _command in commands.COMMANDS:
    audit.add_command(_command)
