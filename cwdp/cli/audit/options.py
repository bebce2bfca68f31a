"""Options that commands of `cwdp audit` share, and how those end that judge."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, get_args

import click
import msgspec
from msgspec import Struct
from rich.console import RenderableType

from cwdp.cli.output import emit
from cwdp.errors import ConfigError, CwdpError, RefusedError
from cwdp.shared.audit.facts import Role
from manager.audit import report, summary
from manager.audit.results import Audit

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
strict_option = click.option(
    "--strict", is_flag=True, help="Warnings fail too, and all that is unknown matters."
)
nagios_option = click.option("--nagios", is_flag=True, help="Print one line, and end as Nagios wants it.")
number_option = click.option(
    "--number", type=click.IntRange(min=1), help="Which audit; the last one unless given."
)
root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A recorded tree, instead of this host.",
)
role_option = click.option(
    "--role",
    "given",
    multiple=True,
    metavar="NIC=ROLE",
    help="Have a NIC be `back`, `front` or neither (`eth0=`); may come several times.",
)


def roles_of(given: tuple[str, ...]) -> dict[str, Role]:
    """The roles that are given.

    Raises:
        ConfigError: one is none.
    """
    pairs = [one.partition("=") for one in given]
    known = get_args(Role)
    for name, between, role in pairs:
        if not name or not between or role not in known:
            raise ConfigError(f"{name}{between}{role} is no role of a NIC", "such as --role eth0=front")
    return {name: msgspec.convert(role, type=Role) for name, _, role in pairs}


class Judged(Struct, frozen=True):
    """How a verdict is to be told."""

    strict: bool
    nagios: bool
    as_json: bool
    html: Path | None

    def tell(
        self, audit: Audit, data: Any, render: Callable[[], RenderableType], *, title: str, ended_s: float
    ) -> NoReturn:
        """Print an audit, and end the command as its verdicts are."""
        status = summary.exit_status(audit, strict=self.strict)
        if self.html is not None:
            _write(self.html, report.html(audit, title=title, ended_s=ended_s))
        if self.nagios:
            line, status = summary.nagios(audit, strict=self.strict)
            click.echo(line)
        else:
            emit(data, as_json=self.as_json, render=render)
        click.get_current_context().exit(status)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", "name another file") from error


def judging(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `Judged`, as `judged`; where it fails it ends with 3, as 1 says that a host does."""

    @functools.wraps(command)
    def judges(*, strict: bool, nagios: bool, as_json: bool, html: Path | None, **others: Any) -> None:
        try:
            command(judged=Judged(strict, nagios, as_json, html), **others)
        except CwdpError as error:
            if nagios:
                click.echo(f"AUDIT UNKNOWN - {error.message}")
                click.get_current_context().exit(summary.NAGIOS_UNKNOWN)
            if isinstance(error, RefusedError) and error.is_asked_wrongly:
                error.exit_status = summary.USAGE
            elif error.exit_status == summary.FAILED:
                error.exit_status = summary.INCOMPLETE
            raise

    for option in (
        json_option,
        click.option(
            "--html",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write a report as well: a page that needs nothing else.",
        ),
        click.option("--nagios", is_flag=True, help="Print one line, and end as Nagios wants it."),
        click.option("--strict", is_flag=True, help="Warnings fail too, and all that is unknown matters."),
    ):
        judges = option(judges)
    return judges
