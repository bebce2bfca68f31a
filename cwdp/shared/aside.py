"""Damaged files, put out of the way."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path


def set_aside(path: Path, endings: Sequence[str] = ("",)) -> Path:
    """Give a file another name, under which it is not found, and those that belong to it by an ending; that name."""
    aside = path.with_name(f"{path.name}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}")
    for ending in endings:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{ending}").rename(f"{aside}{ending}")
    return aside
