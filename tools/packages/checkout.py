"""The checkout that packages are made from."""

import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cwdp.errors import CwdpError
from tools.errors import exit_on_error

CHECKOUT = Path(__file__).parents[2]
BUILT_OBJECT = CHECKOUT / "build/bpf/cwdp.bpf.o"
BUILT_LIBRARIES = tuple(
    CHECKOUT / "build" / name
    for name in ("shim/libcwdp_verbs.so", "shim/libcwdp_verbs_audit.so", "nccl/libcwdp_nccl.so")
)
"""What programs load."""
OUTPUT = CHECKOUT / "build/packages"

_SAID_LINES = 20


class PackageError(CwdpError):
    """A package cannot be made."""


def print_made(make: Callable[[], Iterable[Path]]) -> None:
    """Make something, and print where in the checkout it is; an error ends the program."""
    with exit_on_error():
        for path in make():
            print(path.relative_to(CHECKOUT))


def require(*programs: str) -> None:
    """Make sure that the programs are there.

    Raises:
        PackageError: some are not.
    """
    if lacks := [program for program in programs if shutil.which(program) is None]:
        raise PackageError(f"not installed: {', '.join(lacks)}", "Run `make packaging-tools`.")


def fresh_log(folder: Path, name: str) -> Path:
    """An empty log in a folder, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    log.write_text("")
    return log


def run(command: Sequence[str | Path], cwd: Path, log: Path) -> None:
    """Run a command in a folder; what it says goes to the log.

    Raises:
        PackageError: it failed; with the end of what it said.
    """
    with log.open("a") as said:
        status = subprocess.run(
            command, cwd=cwd, stdout=said, stderr=subprocess.STDOUT, check=False
        ).returncode
    if status:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-_SAID_LINES:])
        raise PackageError(f"{Path(command[0]).name} ended with status {status}", f"{last}\nAll is in {log}.")
