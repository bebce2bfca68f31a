"""Numbers as people read them. No I/O."""

LISTED = 6


def rate(bps: float) -> str:
    """Of a link."""
    return f"{bps / 1e9:.4g} Gbit/s"


def listed(names: list[str]) -> str:
    """The first of many."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{', '.join(names[:LISTED])}{more}"
