"""What somebody changes something for, in their own words: kept with the change, for who reads of it later."""

from cwdp.errors import ConfigError

MOST_CHARACTERS = 200


def read_why(text: str) -> str | None:
    """The words; None where there are none.

    Raises:
        ConfigError: they are too long, or not of one line that can be shown.
    """
    why = text.strip()
    if len(why) > MOST_CHARACTERS:
        raise ConfigError(
            f"why has {len(why)} characters, and {MOST_CHARACTERS} are kept", "say it more briefly"
        )
    if not why.isprintable():
        raise ConfigError(
            "why is one line of printable characters", "leave line breaks and control characters out"
        )
    return why or None
