"""Click parameter types for rates, queues, times and shares."""

from collections.abc import Callable
from typing import Any

import click

from cwdp.errors import ConfigError
from cwdp.shared.rates import parse_rate
from tools.clocks import KINDS
from tools.lab import units
from tools.lab.topology import LabSpec


class Quantity(click.ParamType[Any]):
    """A number with a unit, read by one of the parsers of `tools.lab.units`."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse text; values that are parsed already pass."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ConfigError as error:
            self.fail(f"{error.message}. {error.hint}", param, ctx)


RATE = Quantity("rate", parse_rate)
SIZE = Quantity("size", units.parse_size)
TIME = Quantity("time", units.parse_time)
SHARE = Quantity("share", units.parse_share)
CLOCKS = click.option(
    "--clocks",
    type=click.Choice(KINDS),
    default=LabSpec().clocks,
    show_default=True,
    help="What the hosts' clocks are like.",
)


def refuse_options(ctx: click.Context, names: tuple[str, ...], only_with: str) -> None:
    """Refuse options that were given but mean nothing here.

    Raises:
        UsageError: one of `names`, as parameters, was given.
    """
    default = click.core.ParameterSource.DEFAULT
    given = [
        param.opts[0]
        for param in ctx.command.params
        if param.name in names and ctx.get_parameter_source(param.name) is not default
    ]
    if given:
        raise click.UsageError(f"Give {', '.join(given)} only with {only_with}.")
