"""Writes down what is read of a host, so that it can be read again elsewhere."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from cwdp.audit.files import MOST_ENTRIES
from cwdp.audit.recorded import LATER, Problem, answer_path
from cwdp.audit.source import Source
from cwdp.audit.unreadable import Unreadable

T = TypeVar("T")
IRRELEVANT_IN = ("proc",)
"""Folders of which only what is read is written down, not the names of all that is in them."""


class Recording:
    """A source, of which all that is read is written below a folder.

    Files that cannot be read are not there in the recording, so their reason is another one: "no such file".
    """

    def __init__(self, source: Source, where: Path, overlay: str = "") -> None:
        self._source, self._where, self._overlay = source, where, overlay
        self.pause_s = source.pause_s

    def text(self, path: str) -> str:
        """A file's text, stripped."""
        found = self._source.text(path)
        self._write(path, found.encode())
        return found

    def head(self, path: str) -> str:
        """The first 64 KiB of it."""
        found = self._source.head(path)
        self._write(path, found.encode())
        return found

    def data(self, path: str) -> bytes:
        """A file's bytes."""
        found = self._source.data(path)
        self._write(path, found)
        return found

    def names(self, path: str, most: int = MOST_ENTRIES) -> list[str]:
        """What is in a folder, sorted; each becomes an empty folder until it is read itself."""
        found = self._source.names(path, most)
        folder = self._where / self._source.target(path).lstrip("/")
        self._link(path)
        folder.mkdir(parents=True, exist_ok=True)
        if path not in IRRELEVANT_IN:
            for name in found:
                self._enter(path, folder, name)
        return found

    def target(self, path: str) -> str:
        """Where a path leads to, free of links."""
        found = self._source.target(path)
        self._exist(path)
        return found

    def exists(self, path: str) -> bool:
        """Whether anything is there."""
        is_there = self._source.exists(path)
        if is_there:
            self._exist(path)
        return is_there

    def ask(self, kind: type[T], of: str = "") -> T:
        """An answer, or why there is none."""
        try:
            found = self._source.ask(kind, of)
        except Unreadable as reason:
            self._answer(kind, of, Problem(reason.message))
            raise
        self._answer(kind, of, found)
        return found

    def later(self) -> "Recording":
        """What is read again goes below `later/`."""
        return Recording(self._source.later(), self._where, LATER)

    def _answer(self, kind: type, of: str, found: Any) -> None:
        path = self._where / answer_path(kind, of)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(found))

    def _write(self, path: str, data: bytes) -> None:
        if self._overlay:
            place = self._where / self._overlay / path
        else:
            self._link(path)
            place = self._where / self._source.target(path).lstrip("/")
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def _exist(self, path: str) -> None:
        """Make sure that something is there, and that links lead to it as they did."""
        self._link(path)
        place = self._where / self._source.target(path).lstrip("/")
        if not place.exists():
            place.mkdir(parents=True)

    def _enter(self, path: str, folder: Path, name: str) -> None:
        try:
            target = self._source.target(f"{path}/{name}")
        except Unreadable:
            return
        self._link(f"{path}/{name}")
        place = self._where / target.lstrip("/")
        if not place.exists() and place.parent == folder:
            place.mkdir()

    def _link(self, path: str) -> None:
        """Make links of those parts of a path that are links, as absolute ones within the tree."""
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            part = "/".join(parts[:count])
            target = self._source.target(part).lstrip("/")
            parent = self._source.target("/".join(parts[: count - 1])).lstrip("/")
            link = self._where / parent / parts[count - 1]
            if target == f"{parent}/{parts[count - 1]}".lstrip("/") or link.is_symlink():
                continue
            link.parent.mkdir(parents=True, exist_ok=True)
            (self._where / target).parent.mkdir(parents=True, exist_ok=True)
            if link.is_dir():
                link.rmdir()
            link.symlink_to(f"/{target}")
