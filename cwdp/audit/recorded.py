"""A host as it was recorded: files below a root, answers as JSON, what counters showed later below `later/`."""

from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from cwdp.audit.files import MOST_ENTRIES, Files
from cwdp.audit.unreadable import Unreadable

ANSWERS, LATER, PROBLEM = "answers", "later", "problem"
MOST_ANSWER_BYTES = 1 << 20
GARBLED = (msgspec.DecodeError, ValueError, RecursionError)
T = TypeVar("T")


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In place of an answer: why there was none."""

    problem: str


class Recorded:
    """A recorded tree; `overlay` is a folder of it that comes before it."""

    pause_s = 0.0

    def __init__(self, root: Path, overlay: str = "") -> None:
        self._root, self._overlay = root, overlay
        self._files = Files(root)

    def text(self, path: str) -> str:
        """A file's text, stripped."""
        return self._files.text(self._place(path))

    def head(self, path: str) -> str:
        """The first 64 KiB of it."""
        return self._files.head(self._place(path))

    def data(self, path: str) -> bytes:
        """A file's bytes."""
        return self._files.data(self._place(path))

    def names(self, path: str, most: int = MOST_ENTRIES) -> list[str]:
        """What is in a folder, sorted."""
        return self._files.names(path, most)

    def target(self, path: str) -> str:
        """Where a path leads to, free of links."""
        return self._files.target(path)

    def exists(self, path: str) -> bool:
        """Whether anything is there."""
        return self._files.exists(path)

    def ask(self, kind: type[T], of: str = "") -> T:
        """What was recorded of an answer."""
        path = answer_path(kind, of)
        if not self._files.exists(path):
            raise Unreadable("not recorded")
        text = self._files.data(path, MOST_ANSWER_BYTES)
        with suppress(*GARBLED):
            raise Unreadable(msgspec.json.decode(text, type=Problem).problem)
        try:
            return msgspec.json.decode(text, type=kind)
        except GARBLED as error:
            raise Unreadable(f"recorded, but not to be understood: {error}") from error

    def later(self) -> "Recorded":
        """The same host a while later."""
        return Recorded(self._root, LATER)

    def _place(self, path: str) -> str:
        over = f"{self._overlay}/{path}"
        return over if self._overlay and self._files.exists(over) else path


def answer_path(kind: type, of: str) -> str:
    """Where an answer lies in a tree, such as `answers/ethtool/eth0.json`."""
    name = kind.__name__.lower()
    return f"{ANSWERS}/{name}/{of}.json" if of else f"{ANSWERS}/{name}.json"
