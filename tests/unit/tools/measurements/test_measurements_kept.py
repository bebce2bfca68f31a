"""What is in the repository: measurements whose commands exist, results that belong to them, and the page that they make."""

import importlib
import re
from collections import Counter
from collections.abc import Iterator

import click
import pytest

from cwdp.cli import main as cwdp
from tools.bench.__main__ import PARTS
from tools.measurements import page, results
from tools.measurements.__main__ import DOCS
from tools.measurements.catalogue import Measurement, Row, load, measurements
from tools.measurements.figures import LACKING, pick

TABLES = load()
MEASUREMENTS = list(measurements(TABLES))
RESULTS = results.load(DOCS / "results")
PAGE = (DOCS / "measurements.md").read_text()


def parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Have a command parse its options and arguments, without running it.

    Raises:
        click.ClickException: there is no such command, option or value.
    """
    if isinstance(command, click.Group):
        with click.Context(command, parent) as ctx:
            name, inner, rest = command.resolve_command(ctx, words)
            assert inner is not None, name
            parse(inner, rest, ctx)
    else:
        command.make_context(command.name, words, parent)


def command_of(measurement: Measurement) -> tuple[object, list[str]]:
    """The entry of a measurement's program, and the words behind it."""
    program, *words = measurement.words
    if program == "cwdp":
        return cwdp, words
    assert (program, words[0]) == ("python", "-m")
    return importlib.import_module(f"{words[1]}.__main__").main, words[2:]


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda measurement: measurement.name)
def test_a_measurements_command_exists_and_has_its_options(measurement: Measurement) -> None:
    main, words = command_of(measurement)
    if isinstance(main, click.Command):
        parse(main, words)
    else:
        assert callable(main)
        assert not any(word.startswith("-") for word in words)


@pytest.mark.parametrize(
    "words",
    [
        ["lab", "run", "failover", "--nope"],
        ["lab", "run", "failover", "--cuts", "many"],
        ["lab", "run", "nothing"],
        ["lab", "run", "slices", "surplus"],
    ],
)
def test_a_wrong_command_would_be_found(words: list[str]) -> None:
    with pytest.raises(click.ClickException):
        parse(cwdp, words)


def test_every_part_of_the_benchmark_is_measured_and_nothing_twice() -> None:
    commands = Counter(measurement.command for measurement in MEASUREMENTS)
    names = Counter(measurement.name for measurement in MEASUREMENTS)
    assert {*commands.values(), *names.values()} == {1}
    assert {f"python -m tools.bench {part}" for part in PARTS} == {
        m.command.partition(" --")[0] for m in MEASUREMENTS if m.is_bench
    }
    assert {f"python -m tools.bench {part}" for part in PARTS} <= set(commands)
    assert all(measurement.rows for measurement in MEASUREMENTS)


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda measurement: measurement.name)
def test_names_are_those_of_files_and_benchmarks(measurement: Measurement) -> None:
    assert re.fullmatch(r"[a-z0-9-]+", measurement.name)
    assert measurement.name.startswith("bench-") == measurement.is_bench


def test_the_page_shows_every_table_once() -> None:
    wanted = Counter({page.DURATIONS: 1, **{table.name: 1 for table in TABLES}})
    assert Counter(page.blocks(PAGE)) == wanted


def test_the_page_is_what_the_stored_results_make_it() -> None:
    assert page.rewritten(PAGE, TABLES, RESULTS) == PAGE, "run `python -m tools.measurements write`"


def test_no_stored_result_lacks_a_figure() -> None:
    assert LACKING not in PAGE


def test_every_stored_result_is_of_a_measurement_as_it_is_now() -> None:
    commands = {measurement.name: measurement.command for measurement in MEASUREMENTS}
    assert {name: commands.get(name) for name in RESULTS} == {
        name: known.command for name, known in RESULTS.items()
    }


def test_stored_results_tell_nothing_private() -> None:
    for path in sorted((DOCS / "results").iterdir()):
        assert not re.search(r"/(?:home|root|tmp|work|run|var|usr|Users)/", path.read_text()), path.name


def bench_targets(measurement: Measurement) -> Iterator[tuple[Row, float]]:
    """The rows that show a benchmark's value, each with the target that the benchmark printed beside it."""
    for row in measurement.rows:
        if row.figure.endswith("].value") and row.over is None:
            for target in pick(RESULTS[measurement.name].result, row.figure.removesuffix("value") + "target"):
                if target is not None:
                    yield row, target * row.times


def test_the_targets_of_benchmarks_are_the_pages() -> None:
    for measurement in MEASUREMENTS:
        if measurement.is_bench and measurement.name in RESULTS:
            for row, target in bench_targets(measurement):
                assert target in (pytest.approx(row.at_most), pytest.approx(row.at_least)), row.what
