"""What the commands that read an InfiniBand subnet share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from cwdp.ib.asking import Asker
from cwdp.ib.umad import Umad


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that all of them have: `--dev`, `--port`, `--json`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--port", type=click.IntRange(0, 255), default=0, help="Of the device.  [default: an active one]"
        ),
        click.option(
            "--dev", metavar="DEVICE", default="", help="Ask by this device.  [default: one that is active]"
        ),
    ):
        command = option(command)
    return command


@contextmanager
def asking(device: str, port: int) -> Iterator[Asker]:
    """Ask by a port of this host; see `Umad`."""
    with Umad(device, port) as opened:
        yield Asker(opened)
