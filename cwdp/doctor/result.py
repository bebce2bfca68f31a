"""What a check says."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

Verdict = Literal["ok", "warn", "fail"]
GRAVITY: tuple[Verdict, ...] = ("ok", "warn", "fail")


class Result(Struct, frozen=True, kw_only=True):
    """What one check found.

    Attributes:
        name: of the check.
        of: the interface or device that it is about; "" for the host.
        verdict: `warn` where cwdp works with less than all it can do, `fail` where it does not.
        what: was found.
        next_step: what to do about it; "" where there is nothing to do.
    """

    name: str
    of: str = ""
    verdict: Verdict
    what: str
    next_step: str = ""


def gravest(results: Iterable[Result]) -> Verdict:
    """The worst verdict; `ok` of none."""
    return GRAVITY[max((GRAVITY.index(result.verdict) for result in results), default=0)]
