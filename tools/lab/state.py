"""What is known about a lab between commands: `/run/cwdp/lab/<name>/state.json`, written whole under a lock."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from cwdp.errors import LabError, PrivilegeError
from tools.lab.topology import LabSpec

RUN_ROOT = Path("/run/cwdp/lab")

_T = TypeVar("_T", bound=msgspec.Struct)
_LOCK_TIMEOUT_S = 30.0
_LOCK_POLL_S = 0.02


class TosChange(msgspec.Struct, frozen=True):
    """Which bits of TOS or traffic class get which value."""

    mask: int = 0
    value: int = 0


class LinkFault(msgspec.Struct):
    """What was done to a link, by direction (`h1>l1`); `mtu` is 0 where it is the fabric's."""

    cut: bool = False
    mtu: int = 0
    loss: dict[str, float] = {}
    rate_bps: dict[str, int] = {}
    tos: dict[str, TosChange] = {}
    drop_map_ids: dict[str, int] = {}


class Process(msgspec.Struct, frozen=True):
    """A process that the lab started; `start_ticks` tells it from a later one with the same pid.

    `node` is empty for one that runs outside of the lab's namespaces, `part` for one that is of no part.
    """

    node: str
    pid: int
    start_ticks: int
    argv: list[str]
    part: str = ""


class Part(msgspec.Struct, frozen=True):
    """Something that stands in a lab (`tools.lab.parts`): the process that keeps it, and what it is, for people."""

    keeper: Process
    told: str


class LabState(msgspec.Struct):
    """Everything that is not derived from the spec."""

    spec: LabSpec
    phase: Literal["building", "up"] = "building"
    faults: dict[str, LinkFault] = {}
    processes: list[Process] = []
    parts: dict[str, Part] = {}
    isolated: list[str] = []


def run_dir(name: str) -> Path:
    """Return the directory for a lab's state and for the files of what runs in it."""
    return RUN_ROOT / name


def load(name: str) -> LabState | None:
    """Return a lab's state, None if there is no such lab; raise `LabError` for a file that is not a state."""
    return read(_state_path(name), LabState, f"cwdp lab down --name {name}")


def read(path: Path, kind: type[_T], down: str) -> _T | None:
    """Return the state in a file, None if there is none; raise `LabError` for one that is not a state: `down` takes the lab away."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise LabError(f"{path} is not the state of a lab: {error}", f"Run `{down}`.") from error


def require(name: str) -> LabState:
    """Return the state of a lab that is up; raise `LabError` if it is not."""
    state = load(name)
    if state is None:
        others = ", ".join(_names()) or "none"
        raise LabError(
            f"the lab {name!r} is not up", f"Run `cwdp lab up --name {name}` (labs that are: {others})."
        )
    if state.phase != "up":
        raise LabError(f"the lab {name!r} is half built", f"Run `cwdp lab up --name {name}`.")
    return state


def save(state: LabState) -> None:
    """Replace the state file; readers see the old one or the new one."""
    replace(_state_path(state.spec.name), state)


def replace(path: Path, state: msgspec.Struct) -> None:
    """Replace a file by a state; readers see the old one or the new one."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1))
    temporary.rename(path)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lab's lock; see `held`."""
    with held(run_dir(name)):
        yield


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold a lab's lock, an flock on its directory, which goes if no state is left in it.

    Raises:
        LabError: another command keeps it for long.
        PrivilegeError: this is not root.
    """
    if os.geteuid() != 0:
        raise PrivilegeError("only root can change a lab", "Run the command with sudo.")
    fd = _acquire(directory, time.monotonic() + _LOCK_TIMEOUT_S)
    try:
        yield
    finally:
        if not (directory / "state.json").exists():
            with suppress(OSError):
                directory.rmdir()
        os.close(fd)


def _acquire(directory: Path, deadline: float) -> int:
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _try_lock(fd, directory):
                return fd
            os.close(fd)
        if time.monotonic() > deadline:
            raise LabError(
                f"another command has been changing the lab {directory.name!r} for {_LOCK_TIMEOUT_S:.0f} s",
                "Wait for it to end, then try again.",
            )
        time.sleep(_LOCK_POLL_S)


def _try_lock(fd: int, directory: Path) -> bool:
    """Lock the directory unless it is taken, or was removed while it was being opened."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return directory.stat().st_ino == os.fstat(fd).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _state_path(name: str) -> Path:
    return run_dir(name) / "state.json"


def _names() -> list[str]:
    return sorted(path.parent.name for path in RUN_ROOT.glob("*/state.json"))
