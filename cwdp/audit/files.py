"""The one reader of files: below a root, regular ones only, bounded, and never waiting for anything."""

import os
import re
import stat
from collections import deque
from pathlib import Path

from cwdp.audit.unreadable import Unreadable, of_error

MOST_BYTES = 64 << 10
MOST_ENTRIES = 4096
MOST_LINKS = 40
"""On the way to one file; the kernel's own limit (path_resolution(7))."""

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that would steer a terminal; tabs and line ends are none."""


class Files:
    """Files below a root, named by paths from it.

    Links are followed as if the root were the file system's, so those of a recorded tree stay in it.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._folders: dict[str, str] = {"": ""}

    def text(self, path: str) -> str:
        """All that a file holds, without white space around it and without control characters.

        Raises:
            Unreadable: there is none, it is no regular file, or it is larger than `MOST_BYTES`.
        """
        return _clean(self.data(path))

    def head(self, path: str) -> str:
        """The same of a file's first `MOST_BYTES`; a last line that is cut is left out.

        Raises:
            Unreadable: there is none, or it is no regular file.
        """
        data = self._read(path, MOST_BYTES)
        return _clean(data if len(data) < MOST_BYTES else data.rpartition(b"\n")[0])

    def data(self, path: str, most: int = MOST_BYTES) -> bytes:
        """All that a file holds.

        Raises:
            Unreadable: as `text`; it is larger than `most`.
        """
        found = self._read(path, most + 1)
        if len(found) > most:
            raise Unreadable(f"larger than {most >> 10} KiB")
        return found

    def names(self, path: str, most: int = MOST_ENTRIES) -> list[str]:
        """What is in a folder, sorted.

        Raises:
            Unreadable: there is none, or it holds more than `most` entries.
        """
        found: list[str] = []
        try:
            with os.scandir(self._root + self._resolve(path)) as entries:
                for entry in entries:
                    if len(found) >= most:
                        raise Unreadable(f"more than {most:,} entries")
                    found.append(entry.name)
        except OSError as error:
            raise of_error(error) from error
        return sorted(name for name in found if name.isprintable())

    def target(self, path: str) -> str:
        """Where a path leads to, free of links, from the root on, such as `/sys/devices/pci0000:00/0000:00:03.0`.

        Raises:
            Unreadable: nothing is there.
        """
        found = self._resolve(path)
        try:
            os.lstat(self._root + found)
        except OSError as error:
            raise of_error(error) from error
        return found

    def exists(self, path: str) -> bool:
        """Whether anything is there that can be looked at."""
        try:
            self.target(path)
        except Unreadable:
            return False
        return True

    def _read(self, path: str, most: int) -> bytes:
        where = self._root + self._resolve(path)
        try:
            if not stat.S_ISREG(os.lstat(where).st_mode):
                raise Unreadable("no regular file")
            opened = os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                return _read_up_to(opened, most)
            finally:
                os.close(opened)
        except OSError as error:
            raise of_error(error) from error

    def _resolve(self, path: str) -> str:
        """A path without links, below the root; the last part may be missing."""
        folder, _, name = path.strip("/").rpartition("/")
        start = self._folders.get(folder)
        if start is None:
            start = self._folders[folder] = self._walk("", folder)
        return self._walk(start, name)

    def _walk(self, start: str, rest: str) -> str:
        done, todo, links = start, deque(rest.split("/")), 0
        while todo:
            part = todo.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    raise Unreadable("a link out of the tree")
                done = done.rpartition("/")[0]
                continue
            target = self._link(f"{done}/{part}")
            if target is None:
                done = f"{done}/{part}"
                continue
            links += 1
            if links > MOST_LINKS:
                raise Unreadable("links that loop")
            todo.extendleft(reversed(target.split("/")))
            done = "" if target.startswith("/") else done
        return done

    def _link(self, path: str) -> str | None:
        try:
            return os.readlink(self._root + path)  # noqa: PTH115 - a Path would take half of a collection's time
        except (OSError, ValueError):
            return None


def _read_up_to(opened: int, most: int) -> bytes:
    """What comes until the end of a file, `most` bytes at most."""
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        raise Unreadable("no regular file")
    parts, left = [], most
    while left > 0 and (part := os.read(opened, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _clean(data: bytes) -> str:
    return CONTROLS.sub("", data.decode(errors="replace")).strip()
