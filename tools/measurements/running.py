"""Runs a measurement's command and takes down what it prints, when, and how busy the machine was."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cwdp.errors import CwdpError
from tools.experiments.runs import IdleShare
from tools.measurements.catalogue import Measurement
from tools.measurements.results import Result, this_machine, without_private

CHECKOUT = Path(__file__).parents[2]
MISSED = 1
"""The status of a command that failed. One that printed its result all the same says by it that a target was missed."""


def measure(measurement: Measurement, echo: Callable[[str], None]) -> Result:
    """Run a measurement to its end; what it says on standard error is passed on.

    Args:
        measurement: which.
        echo: is given each line of standard output of one that prints a JSON line a figure.

    Raises:
        CwdpError: it failed.
    """
    started, began_s, idle = datetime.now(UTC), time.monotonic(), IdleShare()
    printed = _run(measurement, echo)
    took_s, idle_share = time.monotonic() - began_s, idle.read()
    found = without_private(parsed(measurement, printed), measurement.without, platform.node())
    return Result(
        command=measurement.command,
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        took_s=round(took_s, 1),
        idle_share=round(idle_share, 3),
        machine=this_machine(),
        result=found,
    )


def argv(measurement: Measurement) -> list[str]:
    """The command with this interpreter, by sudo where it needs root and we are not."""
    program, *arguments = measurement.words
    module = ["-m", "cwdp"] if program == "cwdp" else []
    sudo = ["sudo"] if measurement.needs_root and os.geteuid() else []
    return [*sudo, sys.executable, *module, *arguments]


def parsed(measurement: Measurement, printed: str) -> Any:
    """The JSON that a command printed; a list of figures of one that prints a line each.

    Raises:
        CwdpError: it is none.
    """
    try:
        if measurement.is_bench:
            return [json.loads(line) for line in printed.splitlines()]
        return json.loads(printed)
    except ValueError as error:
        raise CwdpError(f"`{measurement.command}` printed no JSON: {error}") from error


def _run(measurement: Measurement, echo: Callable[[str], None]) -> str:
    lines: list[str] = []
    with subprocess.Popen(argv(measurement), cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if measurement.is_bench:
                    echo(line.rstrip("\n"))
        except KeyboardInterrupt:
            process.wait()  # it takes away what it raised
            raise
    missed = process.returncode == MISSED and _is_whole(measurement, "".join(lines))
    if process.returncode and not missed:
        raise CwdpError(f"`{measurement.command}` ended with status {process.returncode}", "See above.")
    return "".join(lines)


def _is_whole(measurement: Measurement, printed: str) -> bool:
    """Whether it printed a result."""
    if measurement.is_bench:
        return False
    try:
        json.loads(printed)
    except ValueError:
        return False
    return True
