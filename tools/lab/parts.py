"""What stands in a lab after the command that started it: its fleet, jobs, traffic beside them.

Each part is kept by a process of its own, which starts the part's others and ends them. It leads a session, so no
terminal reaches it, and is known to the lab's state by its pid and start time.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cwdp.errors import CwdpError, LabError
from tools.lab import process, state
from tools.lab.lab import Lab
from tools.lab.state import LabState, Process

ROOT = Path(__file__).resolve().parents[2]
LAST_LINES = 6


@dataclass(frozen=True)
class Standing:
    """A part as it is now: what it is, whether the process that keeps it lives, and how many others do."""

    name: str
    told: str
    is_kept: bool
    processes: int


def standing(known: LabState) -> list[Standing]:
    """The parts of a lab of which a process lives, in the order of their start."""
    return [
        found
        for name, part in known.parts.items()
        if (
            found := Standing(
                name, part.told, process.is_alive(part.keeper), len(_alive(_others(known, name)))
            )
        )
        and (found.is_kept or found.processes)
    ]


def start(name: str, part: str, module: str, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Start what keeps a part, and wait until that is up; what it tells.

    Args:
        name: of the lab.
        part: its name.
        module: run as `python -m`, with `--name` and these arguments; it calls `keep`.
        arguments: of the module.

    Raises:
        LabError: there is no such lab, the part stands already, or it did not come up; then nothing of it is left.
    """
    Lab.open(name).require_alone(part)
    log = state.run_dir(name) / f"{part}.log"
    argv = ["setsid", "--fork", sys.executable, "-m", module, "--name", name, *arguments]
    try:
        with log.open("wb") as errors:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, check=False
            )
        answer: dict[str, Any] = json.loads(done.stdout or "{}")
        if answer.get("is_up"):
            return answer
    except BaseException:
        _clear(name, part)
        raise
    _clear(name, part)
    said = log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:] if log.exists() else []
    raise LabError(
        answer.get("error", f"what keeps {part} ended before it was up"),
        answer.get("hint", " / ".join(said) or "It said nothing; try again."),
    )


def stop(name: str, part: str) -> bool:
    """End a part with all its processes; return False if none lived.

    Raises:
        LabError: there is no such lab.
    """
    with state.locked(name):
        known = state.require(name)
        was_alive = part in {each.name for each in standing(known)}
        if part in known.parts:
            process.stop([known.parts.pop(part).keeper])
        process.stop(_others(known, part))
        known.processes = _alive(known.processes)
        state.save(known)
    return was_alive


def keep(
    name: str, part: str, told: str, make: Callable[[Lab], AbstractContextManager[dict[str, Any]]]
) -> NoReturn:
    """Be the process that keeps a part, until SIGTERM; it ends too if who started it no longer waits for it.

    Args:
        name: of the lab.
        part: its name.
        told: what it is, for people.
        make: starts it as a context; what that gives is what `start` returns.
    """
    process.end_on_signals()
    try:
        _register(name, part, told)
        with make(Lab.open(name)) as up:
            _say({"is_up": True, **up})
            while True:
                signal.pause()
    except CwdpError as error:
        with suppress(BrokenPipeError):
            _say({"error": error.message, "hint": error.hint})
        sys.exit(error.exit_status)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(0)


def _register(name: str, part: str, told: str) -> None:
    with state.locked(name):
        Lab.open(name).require_alone(part)
        known = state.require(name)
        known.parts.pop(part, None)
        known.parts[part] = state.Part(process.record("", os.getpid(), sys.argv, part), told)
        state.save(known)


def _say(what: dict[str, Any]) -> None:
    """Answer `start`, once; then standard output leads nowhere."""
    os.write(sys.stdout.fileno(), json.dumps(what).encode())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _clear(name: str, part: str) -> None:
    """Take what has half come up away; the lab may be gone too."""
    with suppress(LabError):
        stop(name, part)


def _others(known: LabState, part: str) -> list[Process]:
    return [each for each in known.processes if each.part == part]


def _alive(processes: Sequence[Process]) -> list[Process]:
    return [each for each in processes if process.is_alive(each)]
