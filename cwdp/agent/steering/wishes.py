"""What the manager wants, as the dataplane has it."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from cwdp.errors import CwdpError, SteeringError

_Wish = TypeVar("_Wish")
_Steer = TypeVar("_Steer")
_Key = TypeVar("_Key", bound=Hashable)


def translated(
    wanted: Iterable[_Wish], read: Callable[[_Wish], tuple[_Key, _Steer]], name: Callable[[_Key], str]
) -> tuple[dict[_Key, _Steer], list[CwdpError]]:
    """All that is possible and stands there once, and why the rest is not.

    Args:
        wanted: wishes.
        read: one of them: for what, and how it is to be steered; raises SteeringError where that is impossible.
        name: of what is steered, for people.
    """
    steers: dict[_Key, _Steer] = {}
    refused: list[CwdpError] = []
    for one in wanted:
        try:
            key, steer = read(one)
        except SteeringError as error:
            refused.append(error)
            continue
        if key in steers:
            refused.append(SteeringError(f"{name(key)} is wanted twice", "take one of them away"))
        else:
            steers[key] = steer
    return steers, refused
