"""Times that people give: so long ago, or a time of day, or a date, by the local clock unless it says otherwise."""

import re
from datetime import datetime, time, timedelta
from typing import Any

import click

SECONDS_OF = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])(?: ago)?")


class _Time(click.ParamType[float]):
    """A time, in seconds since 1970 or, where negative, before now by the manager's clock."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """What a text stands for."""
        ago = _AGO.fullmatch(str(value).strip())
        if ago is not None:
            return -float(ago[1]) * SECONDS_OF[ago[2]]
        try:
            return absolute(str(value).strip(), datetime.now().astimezone())
        except ValueError:
            self.fail(
                f"{value!r} is no time; give one like 10m, 3d, 17:05 or '2026-11-22 17:05'.", param, ctx
            )


def absolute(text: str, now: datetime) -> float:
    """Seconds since 1970 of a date with or without a time of day, or of the last time that it was so late.

    Raises:
        ValueError: it is none.
    """
    if re.fullmatch(r"\d{1,2}:\d\d(:\d\d)?", text):
        then = datetime.combine(
            now.date(), time.fromisoformat(text.zfill(len(text) + (text[1] == ":"))), now.tzinfo
        )
        return (then - timedelta(days=1) if then > now else then).timestamp()
    then = datetime.fromisoformat(text)
    return (then if then.tzinfo is not None else then.replace(tzinfo=now.tzinfo)).timestamp()


TIME = _Time()

at_option = click.option(
    "--at", "at_s", type=TIME, metavar="TIME", help="As it was 10m ago, at 17:05, or at '2026-11-22 17:05'."
)


def shown_time(time_s: float) -> str:
    """A time for people, by the local clock."""
    return f"{datetime.fromtimestamp(time_s).astimezone():%Y-%m-%d %H:%M:%S}"
