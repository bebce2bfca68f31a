"""Files of checks and waivers: `[[check]]`, `[[waiver]]`, and `without`, names of default checks that are not wanted."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from cwdp.errors import ChecksError
from manager.audit.checks.lines import Lines
from manager.audit.checks.mistakes import Mistake, kind_of, suggestion
from manager.audit.checks.model import Check, Checks, Waiver
from manager.audit.checks.of_fabric import OF_FABRIC
from manager.audit.checks.tables import Table, read_check, read_waiver

DEFAULTS = Path(__file__).parents[1] / "defaults"
TOP_KEYS = ("check", "waiver", "without")
_AT_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class _File(Struct):
    """What a file holds, as far as it has no mistakes."""

    checks: list[Check] = []
    waivers: list[Waiver] = []
    without: list[tuple[str, int]] = []
    mistakes: list[Mistake] = []


def load_checks(paths: Sequence[Path] = (), *, with_defaults: bool = True) -> Checks:
    """The checks and waivers of some files, and the default checks.

    A check with the name of a default one comes in its place. A default check named in some file's `without` is left out.

    Raises:
        ChecksError: files have mistakes; all are told, each with its file, its line and what was meant.
    """
    texts, mistakes = [], []
    for path in paths:
        try:
            texts.append((str(path), path.read_text(encoding="utf-8")))
        except OSError as error:
            mistakes.append(
                Mistake(str(path), 1, f"cannot be read: {error.strerror}", "name a file that is there")
            )
        except UnicodeDecodeError:
            mistakes.append(Mistake(str(path), 1, "is no text", "it must be TOML in UTF-8"))
    return checks_of(texts, with_defaults=with_defaults, mistakes=mistakes)


def checks_of(
    texts: Iterable[tuple[str, str]], *, with_defaults: bool = True, mistakes: Sequence[Mistake] = ()
) -> Checks:
    """The same of texts, each with the name of its file; `mistakes` are known already.

    Raises:
        ChecksError: as above.
    """
    files = [(path, _read(path, text)) for path, text in texts]
    defaults = default_checks() if with_defaults else ()
    wrong = [*mistakes, *(one for _, file in files for one in file.mistakes)]
    wrong += _twice([check for _, file in files for check in file.checks])
    own = {check.name: check for _, file in files for check in file.checks}
    names = {check.name for check in defaults} | own.keys()
    waivers = [waiver for _, file in files for waiver in file.waivers]
    if not wrong:
        wrong += _strange_waivers(waivers, names | OF_FABRIC)
    without = set()
    for path, file in files:
        for name, line in file.without:
            if name not in {check.name for check in defaults}:
                meant = suggestion(name, (check.name for check in defaults))
                wrong.append(Mistake(path, line, f"without: no default check is called {name!r}", meant))
            without.add(name)
    if wrong:
        raise refusal(wrong)
    kept = [check for check in defaults if check.name not in own and check.name not in without]
    return Checks((*kept, *own.values()), tuple(waivers))


def refusal(mistakes: Sequence[Mistake]) -> ChecksError:
    """The error that tells all mistakes, in the order of files and lines."""
    told = "\n".join(f"  {each}" for each in sorted(mistakes))
    count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
    return ChecksError(f"{count} in the checks:\n{told}", "correct these lines; no host was judged")


@cache
def default_checks() -> tuple[Check, ...]:
    """What clusters with RoCE are judged by unless told otherwise."""
    found = checks_of(
        [
            (f"defaults/{path.name}", path.read_text(encoding="utf-8"))
            for path in sorted(DEFAULTS.glob("*.toml"))
        ],
        with_defaults=False,
    )
    return found.checks


def _read(path: str, text: str) -> _File:
    file = _File()
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        place = _AT_LINE.search(said)
        line = int(place[1]) if place and place[1] else text.count("\n") + 1
        what = f"is not valid TOML: {_AT_LINE.sub('', said)}"
        file.mistakes.append(Mistake(path, line, what, "correct that line"))
        return file
    lines = Lines(text.replace("\r\n", "\n"))
    for key, value in document.items():
        _take(file, path, lines, key, value)
    return file


def _take(file: _File, path: str, lines: Lines, key: str, value: Any) -> None:
    line = max(lines.of_key("", 0, key), lines.of_table(key, 0))
    if key not in TOP_KEYS:
        file.mistakes.append(Mistake(path, line, f"unknown key {key!r}", suggestion(key, TOP_KEYS)))
    elif key == "without":
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            file.without += [(name, line) for name in value]
        else:
            file.mistakes.append(
                Mistake(path, line, f"without is {kind_of(value)}", "it must be a list of names")
            )
    elif not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        file.mistakes.append(Mistake(path, line, f"{key} is {kind_of(value)}", f"write [[{key}]]"))
    else:
        for number, given in enumerate(value):
            _take_table(file, Table(path, key, number, given, lines))


def _take_table(file: _File, table: Table) -> None:
    if table.kind == "check":
        check = read_check(table)
        file.checks += [] if check is None else [check]
    else:
        waiver = read_waiver(table)
        file.waivers += [] if waiver is None else [waiver]
    file.mistakes += table.mistakes


def _twice(checks: Sequence[Check]) -> list[Mistake]:
    first: dict[str, Check] = {}
    found = []
    for check in checks:
        earlier = first.setdefault(check.name, check)
        if earlier is not check:
            meant = f"another is at {earlier.origin}: give one of them another name"
            found.append(Mistake(*_place(check.origin), f"two checks are called {check.name!r}", meant))
    return found


def _strange_waivers(waivers: Sequence[Waiver], names: set[str]) -> list[Mistake]:
    return [
        Mistake(
            *_place(waiver.origin),
            f"a waiver of {waiver.check!r}, which no check is called",
            suggestion(waiver.check, names),
        )
        for waiver in waivers
        if not any(fnmatchcase(name, waiver.check) for name in names)
    ]


def _place(origin: str) -> tuple[str, int]:
    path, _, line = origin.rpartition(":")
    return path, int(line)
