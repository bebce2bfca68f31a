"""The tables of docs/measurements.md, between marks: what stands between `<!-- results: NAME -->` and `<!-- end -->`."""

import re
from collections.abc import Iterator, Mapping, Sequence

from cwdp.errors import ConfigError
from tools.measurements.catalogue import Measurement, Table, measurements
from tools.measurements.figures import measured, target
from tools.measurements.results import Machine, Result

NOT_YET = "not measured yet"
DURATIONS = "durations"
"""The name of the block that says how long all measurements take."""

_BLOCK = re.compile(r"^<!-- results: (\S+) -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def rewritten(page: str, tables: Sequence[Table], results: Mapping[str, Result]) -> str:
    """The page with all its blocks as the results make them; the prose between stays.

    Raises:
        ConfigError: a block has the name of no table.
    """
    known = {table.name: table for table in tables}

    def block(match: "re.Match[str]") -> str:
        name = match[1]
        if name != DURATIONS and name not in known:
            raise ConfigError(
                f"the page has a block {name!r}", "`tools/measurements/tables` has no such table."
            )
        lines = durations(tables, results) if name == DURATIONS else table_lines(known[name], results)
        return "\n".join((f"<!-- results: {name} -->", "", *lines, "", "<!-- end -->"))

    return _BLOCK.sub(block, page)


def blocks(page: str) -> list[str]:
    """The names of a page's blocks."""
    return [match[1] for match in _BLOCK.finditer(page)]


def table_lines(table: Table, results: Mapping[str, Result]) -> Iterator[str]:
    """A table in Markdown, and below it the command of each measurement and what it was measured on."""
    yield "| what | measured | target | by |"
    yield "| --- | --- | --- | --- |"
    for one in table.measurements:
        result = valid(one, results)
        for row in one.rows:
            shown = NOT_YET if result is None else measured(row, result.result)
            yield f"| {row.what} | {shown} | {target(row)} | `{one.name}` |"
    yield ""
    for one in table.measurements:
        yield f"- `{one.name}`: `{one.command}`; {circumstances(valid(one, results))}"


def valid(measurement: Measurement, results: Mapping[str, Result]) -> Result | None:
    """A measurement's result, if it is that of the command that it has now."""
    result = results.get(measurement.name)
    return result if result is not None and result.command == measurement.command else None


def circumstances(result: Result | None) -> str:
    """How long a measurement took, when, and where."""
    if result is None:
        return NOT_YET
    return (
        f"{duration(result.took_s)} on {result.started[:10]}, {in_words(result.machine)}, "
        f"{100 * result.idle_share:.0f} % idle"
    )


def in_words(machine: Machine) -> str:
    """A machine."""
    return f"{machine.processors} x {machine.processor}, {machine.kernel}"


def duration(seconds: float) -> str:
    """Some seconds, rounded as people do."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def durations(tables: Sequence[Table], results: Mapping[str, Result]) -> Iterator[str]:
    """How long `make bench` and everything took when it was measured last."""
    every = list(measurements(tables))
    yield f"- `make bench`: {_together([one for one in every if one.is_bench], results)}"
    yield f"- `python -m tools.measurements run`: {_together(every, results)}"


def _together(some: Sequence[Measurement], results: Mapping[str, Result]) -> str:
    done = [result for one in some if (result := valid(one, results)) is not None]
    text = f"{len(some)} measurements"
    if not done:
        return f"{text}, {NOT_YET}"
    if len(done) < len(some):
        text += f", {len(done)} of them measured so far"
    return f"{text}: {duration(sum(result.took_s for result in done))}"
