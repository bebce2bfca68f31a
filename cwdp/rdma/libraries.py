"""Where the libraries are that programs load: the verbs shim, and the plug-in for NCCL."""

from pathlib import Path

VERBS, NCCL = "libcwdp_verbs.so", "libcwdp_nccl.so"
INSTALLED = Path("/usr/lib/cwdp/verbs")
"""By the Debian packages, and in the container image."""

_BUILT = Path(__file__).parents[2] / "build"
_PLACES = (INSTALLED, Path(__file__).parent / "lib", _BUILT / "shim", _BUILT / "nccl")


def library(name: str, places: tuple[Path, ...] = _PLACES) -> Path | None:
    """One of them: of the package, else of the wheel, else of the checkout; None where it was not built."""
    found = (place / name for place in places)
    return next((path for path in found if path.is_file()), None)
