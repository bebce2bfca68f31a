"""Rates as people write them: `200mbit`, `2.5gbit`."""

import re

from cwdp.errors import ConfigError

_RATE = re.compile(r"([0-9]{0,15}\.?[0-9]{1,15})\s*([kmgt]?bit)")
_UNITS_BPS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}


def parse_rate(text: str) -> int:
    """Bits per second.

    Raises:
        ConfigError: it is not a number with a unit of rate.
    """
    match = _RATE.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError(f"{text!r} is not a rate", f"give a number with one of {', '.join(_UNITS_BPS)}")
    return round(float(match[1]) * _UNITS_BPS[match[2]])


def format_rate(rate_bps: float) -> str:
    """A rate to four digits, with the largest unit that leaves at least 1."""
    for unit, scale in reversed(_UNITS_BPS.items()):
        if rate_bps >= scale:
            return f"{rate_bps / scale:.4g}{unit}"
    return "0bit"
