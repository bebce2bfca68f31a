"""Which NICs of a host stand in for each other."""

from collections.abc import Sequence


def partner_of(ifnames: Sequence[str], ifname: str) -> str | None:
    """The NIC that takes the place of another when that is dead: the first and the second, the third and the fourth.

    Args:
        ifnames: the host's NICs in the order of its configuration.
        ifname: one of them.
    """
    place = ifnames.index(ifname) ^ 1
    return ifnames[place] if place < len(ifnames) else None
