"""Work that is done in steps, so that others may come to their turn between them. Pure."""

from collections.abc import Generator
from typing import TypeVar

_T = TypeVar("_T")
Steps = Generator[None, None, _T]
"""Each `next` does a step; what all come to is returned at the end."""


def step(work: Steps[_T]) -> tuple[_T] | None:
    """Do one step; what all came to, if that was the last one."""
    try:
        next(work)
    except StopIteration as over:
        return (over.value,)
    return None


def finish(work: Steps[_T]) -> _T:
    """Do all steps that are left; what they come to."""
    while (found := step(work)) is None:
        pass
    return found[0]
