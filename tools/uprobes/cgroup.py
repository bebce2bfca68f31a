"""A cgroup of our own, for as long as it is needed."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cwdp.agent.uprobes.cgroups import mounts

WAIT_S = 20.0


@contextmanager
def unified() -> Iterator[Path]:
    """Where cgroups of version 2 are mounted; where they are not, they are for as long as this lasts.

    Raises:
        subprocess.CalledProcessError: they cannot be mounted.
    """
    there = mounts().unified
    if there is not None:
        yield there
        return
    with tempfile.TemporaryDirectory(prefix="cwdp-cgroups-") as folder:
        subprocess.run(("mount", "-t", "cgroup2", "none", folder), check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(("umount", folder), check=True)


@contextmanager
def cgroup(mount: Path, name: str) -> Iterator[Path]:
    """Make one at NAME/below of a hierarchy, to put programs in, and remove both when these have ended.

    Raises:
        OSError: they have not ended in time.
    """
    below = mount / name / "below"
    below.mkdir(parents=True, exist_ok=True)
    try:
        yield below
    finally:
        _remove(below)
        _remove(below.parent)


def _remove(folder: Path) -> None:
    """A program that was killed is in it for a moment."""
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.01)
        else:
            return
