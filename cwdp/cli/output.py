"""How every command prints: a table for people, JSON for programs, colours only on a terminal."""

import json
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType


def console() -> Console:
    """A console on standard output; plain text where that is not a terminal."""
    return Console(highlight=False)


def emit(data: Any, *, as_json: bool, render: Callable[[], RenderableType]) -> None:
    """Print `data` as JSON, or what `render` makes of it for people."""
    if as_json:
        json.dump(data, sys.stdout, indent=2, sort_keys=True)
        sys.stdout.write("\n")
    else:
        console().print(render())


def progress(what: str) -> None:
    """Say on standard error what a long command is doing."""
    Console(stderr=True, highlight=False).print(what, style="dim", markup=False)
