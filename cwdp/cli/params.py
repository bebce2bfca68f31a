"""Arguments and options that several commands take."""

import re
from typing import Any

import click

from cwdp.shared.messages import nic_id

SECONDS_OF = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class _Duration(click.ParamType[float]):
    """A time such as 90s, 15m, 2h or 1d, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds that a text stands for."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", str(value))
        if match is None:
            self.fail(f"{value!r} is no time; give one like 90s, 15m, 2h or 1d.", param, ctx)
        return float(match[1]) * SECONDS_OF[match[2]]


DURATION = _Duration()

host_option = click.option(
    "--host", metavar="HOST", help="Of this host, by way of the manager, which has it stay so."
)
manager_option = click.option(
    "--manager",
    "url",
    envvar="CWDP_MANAGER",
    metavar="URL",
    help="With --host: unix:///PATH; else the only manager on this host.",
)


def place(host: str | None, ifname: str) -> str:
    """An interface of this host or, where one is named, of another."""
    return ifname if host is None else nic_id(host, ifname)
