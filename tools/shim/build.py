"""The shim, the fake libraries and the programs, compiled."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cwdp.errors import LabError

HERE = Path(__file__).parent
SHIM = HERE.parents[1] / "cwdp/rdma/shim"
OLDER = ("-l:libpthread.so.0", "-l:libdl.so.2")
"""Where older glibcs have threads and dlopen; as in the Makefile."""

FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror")


@dataclass(frozen=True)
class Built:
    """Where things are.

    Attributes:
        fakes: a folder with libibverbs.so.1, the name libibverbs.so for it, libmlx5.so.1, libbnxt_re.so and
            libcwdp_nccl.so.
        own: a folder with the shim as libibverbs.so.
        linked: a program that is linked with libibverbs; with a sanitizer, with the shim before it.
        nccl: the same that looks its functions up as NCCL does.
        audit: the library that has the shim called by LD_AUDIT.
    """

    fakes: Path
    own: Path
    shim: Path
    linked: Path
    nccl: Path
    audit: Path


def build(folder: Path, sanitizer: str | None = None) -> Built:
    """Compile everything into a folder, with `-fsanitize=SANITIZER` if one is given.

    Raises:
        LabError: there is no compiler, or it refuses.
    """
    fakes, own = folder / "fakes", folder / "own"
    fakes.mkdir(parents=True)
    own.mkdir()
    made = Built(
        fakes, own, folder / "libcwdp_verbs.so", folder / "linked", folder / "nccl", folder / "audit.so"
    )
    flags = [*FLAGS, "-I", str(HERE / "fake")]
    if sanitizer:
        flags += [f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer"]
    shared = [*flags, "-fPIC", "-shared", "-fvisibility=hidden"]
    verbs = fakes / "libibverbs.so.1"
    version = f"-Wl,--version-script={HERE / 'fake/exports.map'}"
    compile_c(
        verbs,
        *shared,
        "-Wl,-soname,libibverbs.so.1",
        version,
        *sources(HERE / "fake", "ibverbs", "calls", "data", "ports", "rest"),
    )
    (fakes / "libibverbs.so").symlink_to(verbs.name)
    for source, name in (
        ("mlx5", "libmlx5.so.1"),
        ("bnxt", "libbnxt_re.so"),
        ("nccl", "libcwdp_nccl.so"),
    ):
        vendors = [*shared, "-fvisibility=default", f"-Wl,-soname,{name}", *sources(HERE / "fake", source)]
        compile_c(fakes / name, *vendors, str(verbs))
    name = "-Wl,-soname,libcwdp_verbs.so"
    exports = [f"-Wl,--version-script={SHIM / 'link/exports.map'}", "-Wl,-z,nodelete", "-Wl,--no-as-needed"]
    older = ["-include", str(SHIM / "link/oldest.h")]
    compile_c(
        made.shim,
        *shared,
        *older,
        name,
        *exports,
        *sources(SHIM),
        *sources(SHIM / "posts"),
        *sources(SHIM / "ib"),
        str(verbs),
        *OLDER,
    )
    (own / "libibverbs.so").symlink_to(made.shim)
    program = sources(HERE / "program")
    first = [str(made.shim), f"-Wl,-rpath,{folder}"] if sanitizer else []
    compile_c(made.linked, *flags, "-Wl,--no-as-needed", *program, *first, str(verbs), "-ldl")
    compile_c(made.nccl, *flags, "-DAS_NCCL", *program, "-ldl")
    if not sanitizer:
        compile_c(made.audit, *shared, *sources(SHIM / "audit"))
    return made


def sources(folder: Path, *names: str) -> list[str]:
    """The C files of a folder with some names, all without any."""
    if names:
        return [str(folder / f"{name}.c") for name in names]
    return sorted(str(path) for path in folder.glob("*.c"))


def compile_c(into: Path, *arguments: str) -> None:
    """Have gcc make something.

    Raises:
        LabError: there is no compiler, or it refuses.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise LabError("gcc is not installed", "Run `make setup`.")
    done = subprocess.run(
        [compiler, *arguments, "-o", str(into), "-pthread"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(f"{into.name} cannot be built: {done.stderr.strip()}", "Run `make setup`.")
