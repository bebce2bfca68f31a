"""A click group that imports a subcommand when it is called, not to list it, and tells people of its errors."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import click

from cwdp import __version__
from cwdp.errors import CwdpError

EXIT_INTERRUPTED = 130


class LazyGroup(click.Group):
    """The top of the command tree, or of a part of it.

    `commands_by_path` maps a name to ("module:attribute", one line of help). This is also where errors
    are turned into messages.
    """

    def __init__(
        self, name: str, *, commands_by_path: Mapping[str, tuple[str, str]], **settings: Any
    ) -> None:
        super().__init__(name, context_settings={"help_option_names": ["-h", "--help"]}, **settings)
        self._paths = commands_by_path

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The name of every subcommand that is installed."""
        del ctx
        return sorted(name for name, (path, _) in self._paths.items() if _is_installed(path))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a subcommand."""
        del ctx
        if cmd_name not in self._paths:
            return None
        path = self._paths[cmd_name][0]
        if not _is_installed(path):
            raise CwdpError(
                f"`cwdp {cmd_name}` is part of the checkout and is not installed",
                "clone the repository, and run it there",
            )
        module, _, attribute = path.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of subcommands in the help text, from their stored lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._paths[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand inside the error boundary."""
        with _translated(ctx):
            return super().invoke(ctx)


def _is_installed(path: str) -> bool:
    """Whether the top package of a module is there: packages for hosts hold no `tools`."""
    return find_spec(path.partition(".")[0]) is not None


def version_option(name: str) -> click.Option:
    """Of a command that shows the version by it and ends."""

    def show(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            click.echo(f"{name} {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show the version.",
    )


@contextmanager
def _translated(ctx: click.Context) -> Iterator[None]:
    """Turn a CwdpError inside the block into a message, and an interrupt into a quiet exit."""
    try:
        yield
    except CwdpError as error:
        click.echo(_describe(error), err=True)
        ctx.exit(error.exit_status)
    except KeyboardInterrupt:
        ctx.exit(EXIT_INTERRUPTED)


def _describe(error: CwdpError) -> str:
    """What was wrong, then the next step, indented."""
    return "\n  ".join([f"error: {error.message}", *error.hint.splitlines()])
