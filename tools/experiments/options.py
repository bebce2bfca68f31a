"""Options that the commands of several experiments have."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from cwdp.shared.rates import format_rate
from tools.clocks import ClockKind
from tools.lab import LabSpec
from tools.lab.params import RATE

Command = Callable[..., Any]
Arm = TypeVar("Arm", bound=str)

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def rate_option(rate_bps: int, of: str) -> Callable[[Command], Command]:
    """`--rate` of some links."""
    return click.option("--rate", type=RATE, default=format_rate(rate_bps), show_default=True, help=of)


def fabric_options(
    name: str, *, hosts: int, rate_bps: int, rate_of: str = "Of hosts' links.", spines: int = LabSpec().spines
) -> Callable[[Command], Command]:
    """`--pods`, `--leaves`, `--spines`, `--cores`, `--hosts`, `--rate` with these defaults: the command is given their `spec`.

    The lab has this name; `--seed`, which the command is given too, and `--clocks` go into it as well.
    """
    options = (
        click.option("--pods", default=LabSpec().pods, show_default=True, help="Pods, joined by cores."),
        click.option("--leaves", default=LabSpec().leaves, show_default=True, help="Leaf switches of a pod."),
        click.option("--spines", default=spines, show_default=True, help="Spine switches of a pod."),
        click.option("--cores", default=LabSpec().cores, show_default=True, help="Core switches."),
        click.option("--hosts", default=hosts, show_default=True, help="Hosts per leaf."),
        rate_option(rate_bps, rate_of),
    )

    def add(command: Command) -> Command:
        @functools.wraps(command)
        def with_spec(
            *,
            pods: int,
            leaves: int,
            spines: int,
            cores: int,
            hosts: int,
            rate: int,
            seed: int,
            clocks: ClockKind,
            **others: Any,
        ) -> Any:
            spec = LabSpec(
                name=name,
                pods=pods,
                leaves=leaves,
                spines=spines,
                cores=cores,
                hosts_per_leaf=hosts,
                rate_bps=rate,
                seed=seed,
                clocks=clocks,
            )
            spec.validate()
            return command(spec=spec, seed=seed, **others)

        made: Command = with_spec
        for option in reversed(options):
            made = option(made)
        return made

    return add


def arm_option(arms: Iterable[str], words: str = "Only this one.") -> Callable[[Command], Command]:
    """`--arm`, for `chosen`."""
    return click.option(
        "--arm", "arms", type=click.Choice([str(arm) for arm in arms]), multiple=True, help=words
    )


def chosen(arms: Iterable[Arm], named: tuple[str, ...]) -> list[Arm]:
    """The arms that were named, in their own order; all where none was."""
    return [arm for arm in arms if not named or arm in named]
