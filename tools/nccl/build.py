"""The plug-in and the program that plays NCCL to it, compiled."""

from pathlib import Path
from typing import NamedTuple

from tools.shim.build import compile_c, sources

HERE = Path(__file__).parent
PLUGIN = HERE.parents[1] / "cwdp/nccl/plugin"
OLDEST = HERE.parents[1] / "cwdp/rdma/shim/link/oldest.h"
CALLER = HERE / "caller"
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
    compile_c(made.library, *flags, *shared, *exports, *sources(PLUGIN), "-l:libpthread.so.0")
    compile_c(made.program, *flags, "-I", str(CALLER), *sources(HERE / "program"), *sources(CALLER), "-ldl")
    return made
