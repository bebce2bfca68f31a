"""`python -m tools.packages.wheel`: make the wheel, with the dataplane's object, the verbs shim and the plug-in for NCCL in it.

It holds `cwdp` and `manager`; what belongs to the checkout alone (lab, experiments, benchmarks) is not in it.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.packages.checkout import (
    BUILT_LIBRARIES,
    BUILT_OBJECT,
    CHECKOUT,
    OUTPUT,
    PackageError,
    fresh_log,
    print_made,
    run,
)

_PACKAGES = ("cwdp", "manager")
_FILES = ("LICENSE", "README.md", "pyproject.toml")
_NOT_SOURCES = shutil.ignore_patterns("__pycache__", "*.pyc", "*.bpf.o")
_OBJECT_FOLDER, _LIBRARIES_FOLDER = Path("cwdp/dataplane/loading"), Path("cwdp/rdma/lib")


_PLATFORM = f"linux_{os.uname().machine}"
"""The libraries are compiled for a processor."""


def build(output: Path) -> Path:
    """Make the wheel in a folder, from a copy of the sources, and return its path.

    Raises:
        PackageError: the eBPF programs or the libraries have not been built, or pip failed.
    """
    for path in (BUILT_OBJECT, *BUILT_LIBRARIES):
        if not path.exists():
            raise PackageError(f"{path} is missing", "Run `make bpf shim nccl`.")
    log = fresh_log(output, "wheel")
    with tempfile.TemporaryDirectory(prefix="cwdp-wheel-") as folder:
        sources, made = Path(folder) / "sources", Path(folder) / "made"
        _copy_sources(sources)
        shutil.copy(BUILT_OBJECT, sources / _OBJECT_FOLDER / BUILT_OBJECT.name)
        (sources / _LIBRARIES_FOLDER).mkdir()
        for path in BUILT_LIBRARIES:
            shutil.copy(path, sources / _LIBRARIES_FOLDER / path.name)
        (sources / "setup.cfg").write_text(f"[bdist_wheel]\nplat_name = {_PLATFORM}\n")
        pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
        run([*pip, "--wheel-dir", made, "."], sources, log)
        (wheel,) = made.glob("*.whl")
        return Path(shutil.move(wheel, output / wheel.name))


def _copy_sources(into: Path) -> None:
    for package in _PACKAGES:
        shutil.copytree(CHECKOUT / package, into / package, ignore=_NOT_SOURCES)
    shutil.copytree(CHECKOUT / "LICENSES", into / "LICENSES")
    for name in _FILES:
        shutil.copy(CHECKOUT / name, into / name)


if __name__ == "__main__":
    print_made(lambda: [build(OUTPUT)])
