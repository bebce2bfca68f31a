"""Where facts come from: a host that lives, or a recorded tree."""

from typing import Protocol, TypeVar

from cwdp.audit.files import MOST_ENTRIES

T = TypeVar("T")


class Source(Protocol):
    """Files and answers of one host. Whatever is not available raises `Unreadable`, with the reason.

    Attributes:
        pause_s: that must lie between two readings of counters for them to have a meaning.
    """

    pause_s: float

    def text(self, path: str) -> str:
        """A file's text, stripped."""

    def head(self, path: str) -> str:
        """The first 64 KiB of it."""

    def data(self, path: str) -> bytes:
        """A file's bytes."""

    def names(self, path: str, most: int = MOST_ENTRIES) -> list[str]:
        """What is in a folder, sorted."""

    def target(self, path: str) -> str:
        """Where a path leads to, free of links."""

    def exists(self, path: str) -> bool:
        """Whether anything is there."""

    def ask(self, kind: type[T], of: str = "") -> T:
        """An answer of `answers.py`; of one NIC, PCI device or GPU where it is about one."""

    def later(self) -> "Source":
        """The same host a while later: what its counters are read from again."""
