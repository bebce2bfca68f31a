"""Sizes, times and shares as people write them: `256kb`, `5ms`, `0.5%`; rates are in `cwdp.shared.rates`."""

import re

from cwdp.errors import ConfigError

_NUMBER = re.compile(r"([0-9]{0,15}\.?[0-9]{1,15})\s*([a-z%]*)")
_SIZES_BYTES = {"b": 1, "kb": 2**10, "mb": 2**20}
_AMOUNTS_BYTES = {"": 1, **_SIZES_BYTES}
_TIMES_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_queue(text: str, rate_bps: int) -> int:
    """Return the bytes of a queue given as a size, or as the time that `rate_bps` takes to drain it."""
    value, unit = _split(text, "queue", {**_SIZES_BYTES, **_TIMES_S})
    if unit in _SIZES_BYTES:
        return round(value * _SIZES_BYTES[unit])
    return round(value * _TIMES_S[unit] * rate_bps / 8)


def parse_size(text: str) -> int:
    """Return bytes, written as `5000000` or as `4mb`."""
    value, unit = _split(text, "size", _AMOUNTS_BYTES)
    size_bytes = round(value * _AMOUNTS_BYTES[unit])
    if size_bytes < 1:
        raise ConfigError(f"the size {text!r} is less than a byte", "Give 1 byte or more.")
    return size_bytes


def parse_time(text: str) -> float:
    """Return seconds."""
    value, unit = _split(text, "time", _TIMES_S)
    return value * _TIMES_S[unit]


def parse_share(text: str) -> float:
    """Return a share from 0 to 1, written as `0.005` or as `0.5%`."""
    value, unit = _split(text, "share", {"": 1, "%": 1})
    share = value / 100 if unit == "%" else value
    if share > 1:
        raise ConfigError(
            f"the share {text!r} is more than 1", "Give a share from 0 to 1, such as 0.005 or 0.5%."
        )
    return share


def _split(text: str, what: str, units: dict[str, int] | dict[str, float]) -> tuple[float, str]:
    match = _NUMBER.fullmatch(text.strip().lower())
    if match is None or match[2] not in units:
        known = ", ".join(unit or "a plain number" for unit in units)
        raise ConfigError(f"{text!r} is not a {what}", f"Give a number with one of these units: {known}.")
    return float(match[1]), match[2]
