"""The day that waivers go by."""

from datetime import UTC, date, datetime


def today() -> date:
    """In UTC."""
    return datetime.now(tz=UTC).date()
