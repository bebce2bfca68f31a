"""Where the verbs shim's libraries are, as programs are to load them."""

from pathlib import Path

NAME = "libcwdp_verbs.so"
INSTALLED = Path("/usr/lib/cwdp/verbs")
"""By the Debian packages, and in the container image."""

_PLACES = (INSTALLED, Path(__file__).parent / "lib", Path(__file__).parents[2] / "build/shim")


def library(places: tuple[Path, ...] = _PLACES) -> Path | None:
    """The shim: of the package, else of the wheel, else of the checkout; None where it was not built."""
    found = (place / NAME for place in places)
    return next((path for path in found if path.is_file()), None)
