"""One `[[check]]` or `[[waiver]]` of a file, into a struct, or into what is wrong with it."""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, get_args

from cwdp.shared.audit.catalogue import Fact
from manager.audit.checks.lines import Lines
from manager.audit.checks.mistakes import Mistake, kind_of, suggestion
from manager.audit.checks.model import FACTS, Check, Expectation, Plain, Waiver, Wanted

EXPECTATIONS: tuple[Expectation, ...] = get_args(Expectation)
SEVERITIES = ("warn", "fail")
ROLES = ("back", "front", "all")
WAIVER_KEYS = ("check", "host", "subject", "until", "reason")
_TEXTS = ("name", "why", "mend", "reference")
CHECK_KEYS = (
    *_TEXTS,
    "fact",
    "role",
    "hosts",
    "subjects",
    "when",
    "severity",
    "tolerance",
    *EXPECTATIONS,
)
ELEMENTS = {"flag": "flag", "number": "number", "text": "text", "numbers": "number", "texts": "text"}
IN_WORDS = {
    "flag": "true or false",
    "number": "a number",
    "text": "a text",
    "numbers": "numbers",
    "texts": "texts",
}
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


class Table:
    """A table of a file, with what is found wrong with it."""

    def __init__(self, path: str, kind: str, number: int, given: Mapping[str, Any], lines: Lines) -> None:
        self.path, self.kind, self.number, self.given = path, kind, number, given
        self._lines = lines
        self.mistakes: list[Mistake] = []

    @property
    def origin(self) -> str:
        """File and line of its header."""
        return f"{self.path}:{self._lines.of_table(self.kind, self.number)}"

    def wrong(self, what: str, meant: str = "", *, key: str | None = None) -> None:
        """Note a mistake, at a key or at the table itself."""
        line = (
            self._lines.of_table(self.kind, self.number)
            if key is None
            else self._lines.of_key(self.kind, self.number, key)
        )
        self.mistakes.append(Mistake(self.path, line, what, meant))

    def know_keys(self, known: tuple[str, ...]) -> None:
        """Note keys that there are none of."""
        for key in self.given:
            if key not in known:
                self.wrong(f"unknown key {key!r}", suggestion(key, known, most=0) or _all(known), key=key)

    def text(self, key: str, *, required: bool = False, default: str = "") -> str:
        """A text of one key; not empty where it is required."""
        value = self.given.get(key, default)
        if key not in self.given and required:
            self.wrong(f"a {self.kind} without {key!r}", f"add {key} = a text")
        elif not isinstance(value, str):
            self.wrong(f"{key} is {kind_of(value)}", "it must be a text", key=key)
        elif required and not value.strip():
            self.wrong(f"{key} is empty", "it must be a text", key=key)
        return value if isinstance(value, str) else default

    def choice(self, key: str, known: tuple[str, ...], default: str = "") -> str:
        """One of some words; a mistake without a default where the key is not there."""
        value = self.text(key, required=not default, default=default)
        if value and value not in known:
            self.wrong(f"{key} {value!r} is none", suggestion(value, known), key=key)
        return value

    def patterns(self, key: str) -> tuple[str, ...]:
        """A text or a list of texts."""
        value = self.given.get(key, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            self.wrong(f"{key} is {kind_of(value)}", "it must be a text or texts, such as 'gpu*'", key=key)
            return ()
        return tuple(listed)


def read_check(table: Table) -> Check | None:
    """A check; None where there are mistakes, which the table has then."""
    table.know_keys(CHECK_KEYS)
    name = table.text("name", required=True)
    fact_name = table.text("fact", required=True)
    fact = FACTS.get(fact_name)
    if fact_name and fact is None:
        table.wrong(f"no fact is called {fact_name!r}", suggestion(fact_name, FACTS), key="fact")
    severity = table.choice("severity", SEVERITIES)
    role = table.choice("role", ROLES, "all")
    if fact is not None and fact_name.startswith(("host.", "gpu.")) and role != "all":
        table.wrong(f"{fact_name} has no role", "leave role out", key="role")
    expectation, wanted = _expectation(table, fact_name, fact)
    tolerance, is_share = _tolerance(table, fact, expectation)
    when = _when(table, fact_name)
    hosts, subjects = table.patterns("hosts"), table.patterns("subjects")
    texts = {key: table.text(key) for key in ("why", "mend", "reference")}
    if table.mistakes or expectation is None:
        return None
    return Check(
        name=name,
        fact=fact_name,
        expectation=expectation,
        wanted=wanted,
        severity="fail" if severity == "fail" else "warn",
        role="back" if role == "back" else "front" if role == "front" else "",
        hosts=hosts,
        subjects=subjects,
        when=when,
        tolerance=tolerance,
        tolerance_is_share=is_share,
        origin=table.origin,
        **texts,
    )


def read_waiver(table: Table) -> Waiver | None:
    """A waiver; None where there are mistakes, which the table has then."""
    table.know_keys(WAIVER_KEYS)
    check = table.text("check", required=True)
    host, subject = table.text("host", default="*"), table.text("subject", default="*")
    reason = table.text("reason", required=True)
    until = table.given.get("until")
    if until is None:
        table.wrong("a waiver without 'until'", "add the last day on which it holds, until = 2030-12-31")
    elif not isinstance(until, date) or isinstance(until, datetime):
        shown = f"{until!r}" if isinstance(until, str) else kind_of(until)
        table.wrong(f"until is no date but {shown}", "write it without quotes: 2030-12-31", key="until")
    elif not table.mistakes:
        return Waiver(
            check=check, host=host, subject=subject, until=until, reason=reason, origin=table.origin
        )
    return None


def _expectation(table: Table, name: str, fact: Fact | None) -> tuple[Expectation | None, Wanted]:
    found: list[Expectation] = [each for each in EXPECTATIONS if each in table.given]
    if len(found) > 1:
        table.wrong(f"{len(found)} expectations: {_all(found)}", "a check has one", key=found[1])
        return None, ""
    if not found:
        table.wrong("a check without an expectation", f"add one of {_all(EXPECTATIONS)}")
        return None, ""
    expectation = found[0]
    if fact is None:
        return None, ""
    value = table.given[expectation]
    return expectation, _READERS[expectation](_Wish(table, expectation, value, name, fact))


class _Wish:
    """What is expected of a fact, as written."""

    def __init__(self, table: Table, key: Expectation, value: object, name: str, fact: Fact) -> None:
        self.table, self.key, self.value, self.name, self.fact = table, key, value, name, fact

    def wrong(self, what: str, meant: str) -> Wanted:
        self.table.wrong(what, meant, key=self.key)
        return ""

    def unfit(self, must: str) -> Wanted:
        told = f"{self.name} is {IN_WORDS[self.fact.kind]}"
        return self.wrong(f"{self.key} is {kind_of(self.value)}, but {told}", f"it must be {must}")

    def elements(self, value: object) -> tuple[Plain, ...] | None:
        """A list of what the fact is, or holds; None where it is something else."""
        kind = ELEMENTS[self.fact.kind]
        if not isinstance(value, list) or not all(fits(one, kind) for one in value):
            return None
        return tuple(value)


def fits(value: object, kind: str) -> bool:
    """Whether a value is a `flag`, a `number` or a `text`."""
    if kind == "flag" or isinstance(value, bool):
        return kind == "flag" and isinstance(value, bool)
    return isinstance(value, str) if kind == "text" else isinstance(value, int | float)


def _value(wish: _Wish) -> Wanted:
    if wish.fact.kind in ("numbers", "texts"):
        found = wish.elements(wish.value)
        return wish.unfit(f"a list of {IN_WORDS[wish.fact.kind]}") if found is None else found
    if not fits(wish.value, wish.fact.kind):
        return wish.unfit(IN_WORDS[wish.fact.kind])
    assert isinstance(wish.value, bool | int | float | str)
    return wish.value


def _one_of(wish: _Wish) -> Wanted:
    if wish.fact.kind in ("numbers", "texts"):
        return wish.wrong(f"one_of is for single values, but {wish.name} is a list", "use value or contains")
    found = wish.elements(wish.value)
    return found or wish.unfit(f"a list, each {IN_WORDS[wish.fact.kind]}")


def _bound(wish: _Wish) -> Wanted:
    if wish.fact.kind not in ("number", "numbers"):
        meant = "version_min is for versions; value or one_of for texts"
        return wish.wrong(f"{wish.key} is for numbers, but {wish.name} is {IN_WORDS[wish.fact.kind]}", meant)
    if not fits(wish.value, "number"):
        return wish.unfit("a number")
    assert isinstance(wish.value, int | float)
    return wish.value


def _version(wish: _Wish) -> Wanted:
    if wish.fact.kind != "text":
        told = f"{wish.name} is {IN_WORDS[wish.fact.kind]}"
        return wish.wrong(f"version_min is for texts, but {told}", "use min")
    if not isinstance(wish.value, str) or not re.match(r"v?\d+([.-]\d+)*$", wish.value):
        return wish.wrong("version_min is no version", "write it as a text, such as '28.39.1002'")
    return wish.value


def _members(wish: _Wish) -> Wanted:
    if wish.fact.kind not in ("numbers", "texts"):
        told = f"{wish.name} is {IN_WORDS[wish.fact.kind]}"
        return wish.wrong(f"{wish.key} is for lists, but {told}", "use value or one_of")
    listed = wish.value if isinstance(wish.value, list) else [wish.value]
    return wish.elements(listed) or wish.unfit(f"{IN_WORDS[wish.fact.kind]}, one or a list")


def _other_fact(wish: _Wish) -> Wanted:
    other = wish.value
    if not isinstance(other, str):
        return wish.wrong(f"equals_fact is {kind_of(other)}", "it must be a fact's name")
    known = _facts_beside(wish.name)
    if other not in known:
        return wish.wrong(f"no fact {other!r} of the same subject or of its host", suggestion(other, known))
    if known[other].kind != wish.fact.kind:
        kinds = f"{wish.name} is {IN_WORDS[wish.fact.kind]}, {other} is {IN_WORDS[known[other].kind]}"
        return wish.wrong(f"they are never equal: {kinds}", "compare facts of one kind")
    return other


def _same(wish: _Wish) -> Wanted:
    return (
        True if wish.value is True else wish.wrong("same_in_group is not true", "write true, or leave it out")
    )


_READERS: dict[Expectation, Callable[[_Wish], Wanted]] = {
    "value": _value,
    "one_of": _one_of,
    "min": _bound,
    "max": _bound,
    "version_min": _version,
    "contains": _members,
    "excludes": _members,
    "equals_fact": _other_fact,
    "same_in_group": _same,
}


def _tolerance(table: Table, fact: Fact | None, expectation: Expectation | None) -> tuple[float | None, bool]:
    given = table.given.get("tolerance")
    if given is None:
        return None, False
    if expectation not in (None, "same_in_group") or (fact is not None and fact.kind != "number"):
        table.wrong("tolerance is for same_in_group of numbers", "leave it out", key="tolerance")
    share = _SHARE.fullmatch(given.strip()) if isinstance(given, str) else None
    if share is not None:
        return float(share[1]) / 100, True
    if fits(given, "number") and given >= 0:
        return float(given), False
    table.wrong(f"tolerance {given!r} is none", "write a number, or a share such as '5%'", key="tolerance")
    return None, False


def _when(table: Table, name: str) -> tuple[tuple[str, tuple[Plain, ...]], ...]:
    given = table.given.get("when", {})
    if not isinstance(given, dict):
        table.wrong(f"when is {kind_of(given)}", "write when = { 'nic.driver' = 'mlx5_core' }", key="when")
        return ()
    known = _facts_beside(name) if name in FACTS else FACTS
    found = []
    for other, value in given.items():
        values = value if isinstance(value, list) else [value]
        fact = known.get(other)
        if isinstance(value, dict):
            table.wrong("when holds a table", "put the fact's name in quotes: 'nic.driver'", key="when")
        elif fact is None:
            what = f"when: no fact {other!r} of the same subject or of its host"
            table.wrong(what, suggestion(other, known), key="when")
        elif not values or not all(fits(one, ELEMENTS[fact.kind]) for one in values):
            what = f"when: {other} is {IN_WORDS[fact.kind]}, not {kind_of(value)}"
            table.wrong(what, "name a value, or a list of values", key="when")
        else:
            found.append((other, tuple(values)))
    return tuple(found)


def _facts_beside(name: str) -> dict[str, Fact]:
    """Facts of the same kind of subject, and those of its host."""
    kinds = {name.partition(".")[0], "host"}
    return {each: fact for each, fact in FACTS.items() if each != name and each.partition(".")[0] in kinds}


def _all(words: tuple[str, ...] | list[Expectation]) -> str:
    return ", ".join(words)
