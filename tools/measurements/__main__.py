"""`python -m tools.measurements run|write|list`: measure, and keep docs/measurements.md as what was measured makes it."""

from pathlib import Path

import click
from rich.table import Table as TextTable

from cwdp.cli.output import console, progress
from cwdp.errors import CwdpError
from tools.errors import exit_on_error
from tools.measurements import catalogue, page, results, running
from tools.measurements.catalogue import Measurement
from tools.measurements.figures import LACKING, measured

DOCS = running.CHECKOUT / "docs"

_docs = click.option(
    "--docs",
    type=click.Path(file_okay=False, path_type=Path),
    default=DOCS,
    show_default="docs",
    help="The folder that has measurements.md and results/.",
)


@click.group()
def main() -> None:
    """Measure, and write the tables of docs/measurements.md from what was measured."""


@main.command()
@click.argument("names", nargs=-1)
@_docs
def run(names: tuple[str, ...], docs: Path) -> None:
    """Run the measurements NAMES (`bench-*`), or all; store each result and rewrite the page."""
    tables = catalogue.load()
    chosen = catalogue.named(tables, names)
    known = results.load(docs / "results")
    for one in chosen:
        progress(f"{one.name}: {page.circumstances(page.valid(one, known))}")
    failed = [one.name for one in chosen if not _measured(one, docs)]
    if failed:
        raise CwdpError(f"not measured: {', '.join(failed)}", "What went wrong is said above.")


@main.command()
@_docs
def write(docs: Path) -> None:
    """Rewrite the page from the results that are stored."""
    _write(docs)


@main.command("list")
@_docs
def list_all(docs: Path) -> None:
    """Say which measurements there are, and how long each took last."""
    tables = catalogue.load()
    known = results.load(docs / "results")
    table = TextTable("name", "last", "command", box=None, pad_edge=False)
    for one in catalogue.measurements(tables):
        table.add_row(one.name, page.circumstances(page.valid(one, known)), one.command)
    console().print(table)


def _write(docs: Path) -> None:
    path = docs / "measurements.md"
    path.write_text(page.rewritten(path.read_text(), catalogue.load(), results.load(docs / "results")))


def _measured(one: Measurement, docs: Path) -> bool:
    """Run one and store its result; whether that went well."""
    progress(f"measuring: {one.name}: {one.command}")
    try:
        result = running.measure(one, click.echo)
    except CwdpError as error:
        click.echo(f"error: {one.name}: {error}", err=True)
        return False
    results.store(docs / "results", one, result)
    _write(docs)
    lacking = [row.what for row in one.rows if measured(row, result.result) == LACKING]
    for what in lacking:
        click.echo(f"error: {one.name}: the result has no figure for {what!r}", err=True)
    progress(f"{one.name}: {page.circumstances(result)}")
    return not lacking


if __name__ == "__main__":
    with exit_on_error():
        main()
