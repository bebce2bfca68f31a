"""Results as they are kept in docs/results: what a command printed, when, on what machine, and how busy that was."""

import json
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tools.measurements.catalogue import Measurement

CPU_INFO = Path("/proc/cpuinfo")
_ABSOLUTE_PATH = re.compile(r"(?<![\w.>/-])(?:/[\w.+@-]+)+/([\w.+@-]+)")


class Machine(msgspec.Struct, frozen=True):
    """A machine in words.

    Attributes:
        processor: its model.
        processors: how many it has.
        kernel: the version.
    """

    processor: str
    processors: int
    kernel: str


class Result(msgspec.Struct, frozen=True):
    """What came of a measurement.

    Attributes:
        command: exactly as it was run.
        started: UTC, ISO 8601.
        took_s: from its start to its end.
        idle_share: of the machine's processors, meanwhile.
        machine: where.
        result: the command's own JSON; a list of figures of one that prints a JSON line each.
    """

    command: str
    started: str
    took_s: float
    idle_share: float
    machine: Machine
    result: Any


def this_machine() -> Machine:
    """The machine that this runs on."""
    model = re.search(r"^model name\s*: (.+)$", CPU_INFO.read_text(), re.MULTILINE)
    version = re.match(r"[\d.]*\d", platform.release())
    return Machine(
        processor=model[1].strip() if model else platform.machine(),
        processors=os.cpu_count() or 1,
        kernel=f"{platform.system()} {version[0] if version else ''}".strip(),
    )


def without_private(found: Any, without: Iterable[str], node: str) -> Any:
    """What of a command's JSON is kept: no host name, of absolute paths the last part, nothing below some keys.

    Args:
        found: the JSON.
        without: the keys.
        node: the machine's host name.
    """
    if isinstance(found, dict):
        return {key: without_private(found[key], without, node) for key in found if key not in without}
    if isinstance(found, list):
        return [without_private(item, without, node) for item in found]
    if isinstance(found, str):
        text = _ABSOLUTE_PATH.sub(r"\1", found)
        return re.sub(rf"\b{re.escape(node)}\b", "localhost", text) if node else text
    return found


def store(folder: Path, measurement: Measurement, result: Result) -> None:
    """Keep a result in the place of an earlier one of the same measurement."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{measurement.name}.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(msgspec.to_builtins(result), indent=1) + "\n")
    new.rename(path)


def load(folder: Path) -> dict[str, Result]:
    """All results kept, by the name of their measurement."""
    return {
        path.stem: msgspec.convert(json.loads(path.read_text()), Result)
        for path in sorted(folder.glob("*.json"))
    }
