"""The boundary between the program and the person: errors become a message and an exit status."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from cwdp.errors import CwdpError

EXIT_INTERRUPTED = 130


@contextmanager
def translated(ctx: click.Context) -> Iterator[None]:
    """Turn a CwdpError inside the block into a message, and an interrupt into a quiet exit."""
    try:
        yield
    except CwdpError as error:
        click.echo(describe(error), err=True)
        ctx.exit(error.exit_status)
    except KeyboardInterrupt:
        ctx.exit(EXIT_INTERRUPTED)


def describe(error: CwdpError) -> str:
    """What was wrong, then the next step, indented."""
    return "\n  ".join([f"error: {error.message}", *error.hint.splitlines()])
