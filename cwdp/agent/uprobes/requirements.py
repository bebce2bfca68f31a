"""What uprobes need of a host: bcc, and headers by which it compiles."""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

MODULES = Path("/lib/modules")
KHEADERS = Path("/sys/kernel/kheaders.tar.xz")
SOURCE = "BCC_KERNEL_SOURCE"
"""bcc's own variable: where headers are, for kernels that have none of their own."""

MACHINE = "x86_64"


class Lack(NamedTuple):
    """What is missing, and the next step."""

    what: str
    next_step: str


def lack(
    modules: Path = MODULES, kheaders: Path = KHEADERS, environ: Mapping[str, str] = os.environ
) -> Lack | None:
    """What uprobes lack on this host; None for nothing."""
    machine, release = os.uname().machine, os.uname().release
    if machine != MACHINE:
        return Lack(
            f"uprobes read arguments of functions on {MACHINE} only, not on {machine}", "leave out [uprobes]"
        )
    if not has_bcc():
        return Lack("bcc is not there", "install the package python3-bpfcc")
    if SOURCE in environ:
        if not _are_headers(Path(environ[SOURCE])):
            return Lack(
                f"no kernel headers in {environ[SOURCE]}", f"have {SOURCE} name a folder with include/linux"
            )
    elif not (
        any(_are_headers(modules / release / name) for name in ("build", "source")) or kheaders.exists()
    ):
        what = f"no headers of the kernel {release}"
        return Lack(what, "install them (linux-headers-$(uname -r)), or load the module kheaders")
    return None


def has_bcc() -> bool:
    """Whether the distribution's bcc is there: another project has this name on PyPI."""
    found = importlib.util.find_spec("bcc")
    return found is not None and any(
        (Path(folder) / "libbcc.py").exists() for folder in found.submodule_search_locations or ()
    )


def _are_headers(folder: Path) -> bool:
    return (folder / "include/linux").is_dir() or (folder / "include/generated").is_dir()
