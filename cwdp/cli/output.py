"""How every command prints: a table for people, JSON for programs, colours only on a terminal."""

import json
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType

LINES_AROUND_TABLE = 6


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


def rows_that_fit(lines_each: int) -> int:
    """How many rows of so many lines the terminal holds; all (0) where the output is none."""
    terminal = console()
    return max(3, (terminal.height - LINES_AROUND_TABLE) // lines_each) if terminal.is_terminal else 0


def progress(what: str) -> None:
    """Say on standard error what a long command is doing."""
    Console(stderr=True, highlight=False).print(what, style="dim", markup=False)
