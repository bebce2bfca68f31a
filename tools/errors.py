"""What programs that are run by `python -m tools...` do at errors that people understand."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cwdp.errors import CwdpError


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Where an error comes out of the block, say it and end with its exit status."""
    try:
        yield
    except CwdpError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_status)
