"""Programs of an InfiniBand lab. Each carries the lab's name in its environment, so that all are found whoever started them."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cwdp.errors import LabError
from tools.ib.simulated import LIBRARY
from tools.waiting import wait_for

NEEDED = {"ibsim": "ibsim-utils", "opensm": "opensm", "ibportstate": "infiniband-diags"}
"""Programs, and Debian's packages that have them."""

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("OSM_CACHE_DIR", "OSM_TMP_DIR")
"""Where opensm writes. The simulator's library writes into the working directory, and leaves it if it is killed."""

MARK, PART = "IBSIM_SOCKNAME", "CWDP_IB_LAB_PART"
LEADING = ["setsid", "--fork"]
END_S, POLL_S = 3.0, 0.02


def require_installed() -> None:
    """Raise `LabError` where a program of the lab is not there."""
    lacking = {package for program, package in NEEDED.items() if not _program(program)}
    if not LIBRARY.exists():
        lacking.add("libumad2sim0")
    if lacking:
        names = " ".join(sorted(lacking))
        raise LabError(f"the InfiniBand lab needs {names}", f"Install: apt-get install {names}.")


def environment(name: str, node: str = "") -> dict[str, str]:
    """Of what runs at a node, or of the simulator itself."""
    own = {**os.environ, MARK: _mark(name)}
    return {**own, "SIM_HOST": node, "LD_PRELOAD": str(LIBRARY)} if node else own


def start(
    name: str,
    argv: Sequence[str],
    log: Path,
    *,
    node: str = "",
    part: str = "",
    stdin: int = subprocess.DEVNULL,
) -> None:
    """Start a program that stays, in a session of its own.

    Args:
        name: of the lab.
        argv: of the program.
        log: takes what it says.
        node: where it runs; empty outside of the subnet.
        part: of the lab, which can be ended alone; what the program starts is of it too.
        stdin: a file descriptor.
    """
    folder = str(log.parent)
    own = {**dict.fromkeys(FOLDERS, folder), "PYTHONPATH": str(ROOT), **({PART: part} if part else {})}
    with log.open("wb") as output:
        subprocess.run(
            [*LEADING, _program(argv[0]) or argv[0], *argv[1:]],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**environment(name, node), **own},
            check=True,
        )


def running(name: str, *parts: str) -> dict[int, str]:
    """The programs of a lab that live, but for this process: their names by pid; those of some parts, if some are named."""
    found = {}
    for path in Path("/proc").glob("[1-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if int(path.name) != os.getpid() and _is_marked(path, name, parts):
                found[int(path.name)] = _title(path)
    return found


def end(name: str, *parts: str) -> bool:
    """End programs of a lab, all unless parts are named; ask, wait, then insist. Return whether there was any."""
    was_any = False
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in running(name, *parts):
            was_any = True
            _signal(name, pid, number)
        if wait_for(lambda: not running(name, *parts), END_S, poll_s=POLL_S):
            break
    return was_any


def _signal(name: str, pid: int, number: int) -> None:
    """Signal a process if it is still one of the lab."""
    with suppress(ProcessLookupError, FileNotFoundError):
        fd = os.pidfd_open(pid)
        try:
            if _is_marked(Path(f"/proc/{pid}"), name):
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def _mark(name: str) -> str:
    return f"cwdp-lab-{name}"


def _is_marked(path: Path, name: str, parts: Sequence[str] = ()) -> bool:
    """A process that has ended and is not yet waited for has no environment."""
    own = set((path / "environ").read_bytes().split(b"\0"))
    is_of_lab = f"{MARK}={_mark(name)}".encode() in own
    return is_of_lab and (not parts or any(f"{PART}={part}".encode() in own for part in parts))


def _title(path: Path) -> str:
    """The program's name; of a module of Python the module's."""
    argv = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
    if argv[:2] == LEADING:
        argv = argv[2:]
    return argv[2] if argv[1:2] == ["-m"] else Path(argv[0]).name


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
