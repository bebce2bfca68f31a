"""Processes of this host, by /proc; those that this process may not look at are passed over."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path

PROC = Path("/proc")


def names() -> Iterator[str]:
    """What the kernel calls each: 15 characters at most."""
    for folder in _folders():
        with suppress(OSError):
            yield (folder / "comm").read_text().strip()


def agents_here() -> int:
    """How many agents run in this network namespace."""
    return sum(_is_here(folder) and is_agent(_arguments(folder)) for folder in _folders())


def is_agent(arguments: list[str]) -> bool:
    """Whether a command line is `python .../cwdp agent run` or `python -m cwdp agent run`, and not of what started it."""
    if not arguments or not Path(arguments[0]).name.startswith("python"):
        return False
    program, *rest = list(dropwhile(lambda argument: argument.startswith("-"), arguments[1:])) or [""]
    return Path(program).name == "cwdp" and rest[:2] == ["agent", "run"]


def owner_of(inode: str) -> str:
    """The name of a process that has a socket open; "" where none can be seen."""
    for folder in _folders():
        with suppress(OSError):
            if any(_target(link) == f"socket:[{inode}]" for link in (folder / "fd").iterdir()):
                return (folder / "comm").read_text().strip()
    return ""


def _folders() -> Iterator[Path]:
    return PROC.glob("[0-9]*")


def _arguments(folder: Path) -> list[str]:
    try:
        return [os.fsdecode(argument) for argument in (folder / "cmdline").read_bytes().split(b"\0")]
    except OSError:
        return []


def _is_here(folder: Path) -> bool:
    here = _target(PROC / "self/ns/net")
    return bool(here) and _target(folder / "ns/net") == here


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
