"""The plug-in and the program that plays NCCL to it, compiled."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from cwdp.errors import LabError

HERE = Path(__file__).parent
PLUGIN = HERE.parents[1] / "cwdp/nccl/plugin"
OLDEST = HERE.parents[1] / "cwdp/rdma/shim/link/oldest.h"
FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")


class Built(NamedTuple):
    """Where they are."""

    library: Path
    program: Path


def build(folder: Path, sanitizer: str | None = None) -> Built:
    """Compile both into a folder, with `-fsanitize=SANITIZER` if one is given.

    Raises:
        LabError: there is no compiler, or it refuses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = Built(folder / "libcwdp_nccl.so", folder / "player")
    flags = [*FLAGS, "-I", str(PLUGIN)]
    if sanitizer:
        flags += [f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer"]
    shared = ["-fPIC", "-shared", "-fvisibility=hidden", "-include", str(OLDEST)]
    exports = [f"-Wl,--version-script={PLUGIN / 'exports.map'}", "-Wl,-z,nodelete"]
    _compile(made.library, *flags, *shared, *exports, *_sources(PLUGIN), "-l:libpthread.so.0")
    _compile(made.program, *flags, *_sources(HERE / "program"), "-ldl")
    return made


def _sources(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("*.c"))


def _compile(into: Path, *arguments: str) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        raise LabError("gcc is not installed", "Run `make setup`.")
    done = subprocess.run(
        [compiler, *arguments, "-o", str(into)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"{into.name} cannot be built: {done.stderr.strip()}", "Run `make setup`.")
