"""`python -m tools.lab`: the lab's commands without the rest of cwdp."""

import sys

import click

from cwdp.errors import CwdpError
from tools.lab_cli import lab

try:
    lab(prog_name="cwdp lab")
except CwdpError as error:
    click.echo(f"error: {error}", err=True)
    sys.exit(error.exit_status)
