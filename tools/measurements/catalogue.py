"""Which measurements there are, as `tables/*.toml` name them: their commands, and what is read out of their JSON."""

import shlex
import tomllib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from cwdp.errors import ConfigError

TABLES = Path(__file__).with_name("tables")
BENCH = "python -m tools.bench "
SIMULATION = "python -m tools.sim "


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One figure of a measurement.

    Attributes:
        what: it is.
        figure: where it stands in the JSON; see `figures.pick`.
        over: the figure that it is divided by.
        times: what it is multiplied by, to be in `unit`.
        digits: shown behind the point.
        at_most, at_least: its target, in `unit`; neither for a figure that has none.
    """

    what: str
    figure: str
    over: str | None = None
    unit: str = ""
    times: float = 1.0
    digits: int = 0
    at_most: float | None = None
    at_least: float | None = None


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command that prints JSON.

    Attributes:
        name: of the measurement, and of the file of its result.
        command: as it is typed in the checkout.
        rows: what is shown of it.
        without: keys of the JSON that are not stored: long, and shown nowhere.
    """

    name: str
    command: str
    rows: tuple[Row, ...]
    without: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The command's."""
        return shlex.split(self.command)

    @property
    def is_bench(self) -> bool:
        """Whether it prints one JSON line a figure, as `python -m tools.bench` does."""
        return self.command.startswith(BENCH)

    @property
    def needs_root(self) -> bool:
        """Whether it makes network namespaces, loads programs or boots a machine."""
        return not self.command.startswith(SIMULATION)


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measurements that docs/measurements.md shows together, under this name."""

    name: str
    measurements: tuple[Measurement, ...]


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tables: tuple[Table, ...]


def load() -> list[Table]:
    """Read all tables, by name of their file."""
    return [
        table
        for path in sorted(TABLES.glob("*.toml"))
        for table in msgspec.convert(tomllib.loads(path.read_text()), _Tables).tables
    ]


def measurements(tables: Sequence[Table]) -> Iterator[Measurement]:
    """All measurements of some tables."""
    for table in tables:
        yield from table.measurements


def named(tables: Sequence[Table], patterns: Sequence[str]) -> list[Measurement]:
    """The measurements that some patterns (`bench-*`) name, in their own order; all without a pattern.

    Raises:
        ConfigError: a pattern names none.
    """
    known = list(measurements(tables))
    for pattern in patterns:
        if not any(fnmatchcase(one.name, pattern) for one in known):
            raise ConfigError(
                f"no measurement is called {pattern!r}", "`python -m tools.measurements list` tells all."
            )
    return [one for one in known if not patterns or any(fnmatchcase(one.name, each) for each in patterns)]
