"""`python -m tools.packages.image [DEB...]`: make the agent's container image, as an OCI layout in a folder.

It is made from Debian's packages and ours alone; no image of others is below it.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cwdp import __version__
from tools.packages.checkout import CHECKOUT, OUTPUT, PackageError, fresh_log, print_made, require, run

FOLDER = OUTPUT / "cwdp-agent.oci"
ENTRYPOINT = "/usr/bin/cwdp"

_SYSTEM_SH = CHECKOUT / "tools/packages/system.sh"
_PACKAGES = ("cwdp", "cwdp-agent")
_NEEDED = ("libbpf1", "libstdc++6", "python3", "python3-nacl", "python3-prometheus-client", "python3-rich")
_CONFIG = (
    *("--config.entrypoint", ENTRYPOINT, "--config.cmd", "agent", "--config.cmd", "run"),
    *("--config.label", "org.opencontainers.image.title=cwdp-agent"),
    *("--config.label", f"org.opencontainers.image.version={__version__}"),
)


def made(folder: Path) -> list[Path]:
    """The Debian packages in a folder that go into the image, of each the last that was made.

    Raises:
        PackageError: one is not there.
    """
    debs = []
    for name in _PACKAGES:
        found = sorted(folder.glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise PackageError(f"no package {name} in {folder}", "Run `make deb`, or name the files.")
        debs.append(found[-1])
    return debs


def build(debs: Iterable[Path], into: Path) -> Path:
    """Make the image in a folder, which is replaced, tagged by the program's version.

    Raises:
        PackageError: something is not installed, or a step failed.
    """
    require("mmdebstrap", "umoci")
    if os.geteuid() != 0:
        raise PackageError("the image's files are root's", "Run it as root.")
    log = fresh_log(into.parent, "image")
    with tempfile.TemporaryDirectory(prefix="cwdp-image-") as folder:
        layer, layout = Path(folder) / "layer.tar", Path(folder) / "layout"
        image = f"{layout}:{__version__}"
        run([_SYSTEM_SH, layer, "-", *_NEEDED, *debs], into.parent, log)
        run(["umoci", "init", "--layout", layout], into.parent, log)
        run(["umoci", "new", "--image", image], into.parent, log)
        run(["umoci", "raw", "add-layer", "--image", image, layer], into.parent, log)
        run(["umoci", "config", "--image", image, *_CONFIG], into.parent, log)
        run(["umoci", "gc", "--layout", layout], into.parent, log)
        shutil.rmtree(into, ignore_errors=True)
        return Path(shutil.move(layout, into))


if __name__ == "__main__":
    given = [Path(name).resolve() for name in sys.argv[1:]]
    print_made(lambda: [build(given or made(OUTPUT), FOLDER)])
