"""Packages as those of a version before: other numbers, and another build of the eBPF programs."""

import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tools.packages.checkout import BUILT_OBJECT, run

VERSION = "0.0.9"


def make(debs: Iterable[Path], output: Path) -> None:
    """Write them to a folder."""
    output.mkdir(parents=True, exist_ok=True)
    for deb in debs:
        with tempfile.TemporaryDirectory(prefix="cwdp-older-") as folder:
            unpacked, log = Path(folder) / "unpacked", output.parent / "older.log"
            run(["dpkg-deb", "-R", deb, unpacked], output, log)
            _number(unpacked / "DEBIAN/control")
            for built_object in unpacked.rglob(BUILT_OBJECT.name):
                built_object.write_bytes(built_object.read_bytes() + b"\0")
            made = Path(folder) / deb.name.replace(_version(deb), VERSION)
            run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", unpacked, made], output, log)
            shutil.move(made, output / made.name)


def _version(deb: Path) -> str:
    return deb.name.split("_")[1]


def _number(control: Path) -> None:
    text = re.sub(r"^Version: .*$", f"Version: {VERSION}", control.read_text(), flags=re.MULTILINE)
    control.write_text(re.sub(r"cwdp \(= [^)]*\)", f"cwdp (= {VERSION})", text))
