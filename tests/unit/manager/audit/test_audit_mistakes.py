"""Checks with mistakes: file, line and what was meant, all of them, before anything runs."""

import json
import tomllib
from pathlib import Path

import pytest
from audit_world import check_text
from hypothesis import given
from hypothesis import strategies as st

from cwdp.errors import ChecksError, ConfigError
from manager.audit.checks.lines import Lines
from manager.audit.checks.loading import checks_of, default_checks, load_checks

GOOD = '[[check]]\nname = "a"\nfact = "nic.mtu_bytes"\nmin = 1500\nseverity = "warn"\n'


def mistakes(text: str, *, with_defaults: bool = False) -> list[str]:
    with pytest.raises(ChecksError) as caught:
        checks_of([("own.toml", text)], with_defaults=with_defaults)
    assert caught.value.exit_status == 2
    assert isinstance(caught.value, ConfigError)
    return [line.strip() for line in caught.value.message.splitlines()[1:]]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["min = 1500", 'severty = "warn"'], "own.toml:6: unknown key 'severty'; did you mean 'severity'?"),
        (["minimum = 1500"], "own.toml:5: unknown key 'minimum'"),
        ([], "own.toml:1: a check without an expectation; add one of value, one_of, min, max"),
        (["min = 1", "max = 2"], "own.toml:6: 2 expectations: min, max; a check has one"),
        (['min = "1500"'], "own.toml:5: min is a text, but nic.mtu_bytes is a number; it must be a number"),
        (["min = true"], "own.toml:5: min is true or false, but nic.mtu_bytes is a number"),
        (["value = [1500]"], "own.toml:5: value is a list, but nic.mtu_bytes is a number"),
        (["one_of = []"], "own.toml:5: one_of is a list, but nic.mtu_bytes is a number; it must be a list, each a number"),
        (["one_of = [1500, 'x']"], "own.toml:5: one_of is a list, but"),
        (["contains = [1]"], "own.toml:5: contains is for lists, but nic.mtu_bytes is a number; use value or one_of"),
        (["version_min = '1.2'"], "own.toml:5: version_min is for texts, but nic.mtu_bytes is a number; use min"),
        (["equals_fact = 'nic.mtu'"], "own.toml:5: no fact 'nic.mtu' of the same subject or of its host; did you mean"),
        (["equals_fact = 'gpu.product'"], "own.toml:5: no fact 'gpu.product' of the same subject"),
        (["equals_fact = 'nic.driver'"], "own.toml:5: they are never equal: nic.mtu_bytes is a number, nic.driver is a text"),
        (["same_in_group = false"], "own.toml:5: same_in_group is not true; write true, or leave it out"),
        (["same_in_group = true", "tolerance = 'much'"], "own.toml:6: tolerance 'much' is none; write a number, or a share"),
        (["min = 1", "tolerance = '5%'"], "own.toml:6: tolerance is for same_in_group of numbers; leave it out"),
        (["min = 1", "role = 'backend'"], "own.toml:6: role 'backend' is none; did you mean 'back'?"),
        (["min = 1", "hosts = 7"], "own.toml:6: hosts is a number; it must be a text or texts"),
        (["min = 1", "subjects = ['a', 1]"], "own.toml:6: subjects is a list; it must be a text or texts"),
        (["min = 1", "when = 'x'"], "own.toml:6: when is a text; write when = { 'nic.driver' = 'mlx5_core' }"),
        (["min = 1", "when = { 'nic.drivr' = 'x' }"], "own.toml:6: when: no fact 'nic.drivr' of the same subject or of its host; did you mean 'nic.driver'?"),
        (["min = 1", "when = { nic.driver = 'x' }"], "own.toml:6: when holds a table; put the fact's name in quotes"),
        (["min = 1", "when = { 'nic.driver' = 7 }"], "own.toml:6: when: nic.driver is a text, not a number; name a value"),
        (["min = 1", "why = 7"], "own.toml:6: why is a number; it must be a text"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_check_is_told_with_its_line(lines: list[str], wanted: str) -> None:
    told = mistakes(check_text("nic.mtu_bytes", *lines))
    assert any(wanted in each for each in told), told
    assert len(told) <= 2


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (check_text("nic.mtu", "min = 1"), "own.toml:3: no fact is called 'nic.mtu'; did you mean 'nic.mtu_bytes'?"),
        (check_text("host.os", "min = 1"), "own.toml:5: min is for numbers, but host.os is a text; version_min is for versions"),
        (check_text("host.os", "version_min = 'new'"), "own.toml:5: version_min is no version; write it as a text"),
        (check_text("host.modules", "one_of = ['a']"), "own.toml:5: one_of is for single values, but host.modules is a list"),
        (check_text("host.modules", "value = 'a'"), "own.toml:5: value is a text, but host.modules is texts; it must be a list of texts"),
        (check_text("host.modules", "excludes = [1]"), "own.toml:5: excludes is a list, but host.modules is texts"),
        (check_text("host.os", "value = 'x'", "role = 'back'"), "own.toml:6: host.os has no role; leave role out"),
        (check_text("nic.mtu_bytes", "min = 1", severity="critical"), "own.toml:4: severity 'critical' is none; there are fail, warn"),
        (check_text("nic.mtu_bytes", "min = 1", severity="wran"), "own.toml:4: severity 'wran' is none; did you mean 'warn'?"),
        ("[[check]]\nfact = 'host.os'\nvalue = 'x'\nseverity = 'warn'", "own.toml:1: a check without 'name'; add name = a text"),
        ("[[check]]\nname = ''\nfact = 'host.os'\nvalue = 'x'\nseverity = 'warn'", "own.toml:2: name is empty"),
        ("[[check]]\nname = 'n'\nvalue = 'x'\nseverity = 'warn'", "own.toml:1: a check without 'fact'"),
        ("[[check]]\nname = 'n'\nfact = 'host.os'\nvalue = 'x'", "own.toml:1: a check without 'severity'"),
        (GOOD + GOOD, "own.toml:6: two checks are called 'a'; another is at own.toml:1"),
        ("[[chek]]\nname = 'a'", "own.toml:1: unknown key 'chek'; did you mean 'check'?"),
        ("\n[check]\nname = 'a'", "own.toml:2: check is a table; write [[check]]"),
        ("\ncheck = 7", "own.toml:2: check is a number; write [[check]]"),
        ("\n\nname = 'a", "own.toml:3: is not valid TOML"),
        ("a = [", "own.toml:1: is not valid TOML"),
        ("a = 1\na = 2", "own.toml:2: is not valid TOML"),
        ("[[check]]\nname = 'a'\nname = 'b'", "own.toml:3: is not valid TOML"),
        ("without = 'x'", "own.toml:1: without is a text; it must be a list of names"),
        (GOOD + "[[waiver]]\ncheck = 'b'\nuntil = 2030-01-01\nreason = 'r'", "own.toml:6: a waiver of 'b', which no check is called"),
        (GOOD + "[[waiver]]\ncheck = 'a'\nuntil = 2030-01-01", "own.toml:6: a waiver without 'reason'"),
        (GOOD + "[[waiver]]\ncheck = 'a'\nreason = 'r'", "own.toml:6: a waiver without 'until'; add the last day"),
        (GOOD + "[[waiver]]\ncheck = 'a'\nreason = 'r'\nuntil = '2030-01-01'", "own.toml:9: until is no date but '2030-01-01'; write it without quotes"),
        (GOOD + "[[waiver]]\ncheck = 'a'\nreason = 'r'\nuntil = 2030-01-01T00:00:00", "own.toml:9: until is no date but a date or time"),
        (GOOD + "[[waiver]]\ncheck = 'a'\nreason = 'r'\nuntil = 2030-02-30", "own.toml:9: is not valid TOML"),
        (GOOD + "[[waiver]]\ncheck = 'a'\nreason = 'r'\nuntil = 2030-01-01\nhots = 'x'", "own.toml:10: unknown key 'hots'; did you mean 'host'?"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_told_with_its_line(text: str, wanted: str) -> None:
    told = mistakes(text)
    assert any(wanted in each for each in told), told


def test_all_mistakes_of_all_files_are_told_at_once() -> None:
    first = check_text("nic.mtu", "min = 1") + check_text("nic.driver", "min = 1", name="d")
    second = "[[waiver]]\ncheck = 7\n"
    with pytest.raises(ChecksError) as caught:
        checks_of([("a.toml", first), ("b.toml", second)])
    assert caught.value.message.startswith("5 mistakes in the checks:")
    for place in ("a.toml:3", "a.toml:10", "b.toml:1", "b.toml:2"):
        assert place in caught.value.message
    assert "no host was judged" in caught.value.hint


def test_a_waiver_of_a_check_that_is_almost_called_so() -> None:
    text = '[[waiver]]\ncheck = "mtu-alke"\nreason = "r"\nuntil = 2030-01-01\n'
    assert mistakes(text, with_defaults=True) == [
        "own.toml:1: a waiver of 'mtu-alke', which no check is called; did you mean 'mtu-alike'?"
    ]


def test_a_default_check_that_is_left_out_must_exist() -> None:
    told = mistakes('# first\nwithout = [\n  "mtu-alke",\n]\n', with_defaults=True)
    assert told == ["own.toml:2: without: no default check is called 'mtu-alke'; did you mean 'mtu-alike'?"]


def test_own_checks_come_in_the_place_of_default_ones() -> None:
    own = check_text("nic.mtu_bytes", "value = 9000", name="mtu-alike")
    checks = checks_of([("own.toml", 'without = ["dns-alike"]\n' + own)]).checks
    assert len(checks) == len(default_checks()) - 1
    assert [check.expectation for check in checks if check.name == "mtu-alike"] == ["value"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ChecksError) as caught:
        load_checks([tmp_path / "none.toml", tmp_path / "binary.toml"])
    assert "none.toml:1: cannot be read" in caught.value.message
    assert "binary.toml:1: is no text" in caught.value.message
    (tmp_path / "good.toml").write_text(GOOD)
    assert len(load_checks([tmp_path / "good.toml"], with_defaults=False).checks) == 1


def test_lines_over_strings_and_arrays_of_several_lines() -> None:
    text = '''# head
top = 1
[[check]]  # first
name = "a # no comment"
why = """
[[check]]
name = "not this"
"""
one_of = [
  "x", # ]
  'y]',
]
mend = \'\'\'
\'\'\'
[check.when]
"nic.driver" = "z"
[[check]]
when = { "nic.driver" = "]" }
"quoted key" = 1
fact = 3
[[waiver]]
until = 2030-01-01
'''
    lines = Lines(text)
    assert lines.of_key("", 0, "top") == 2
    assert lines.of_table("check", 0) == 3
    assert [lines.of_key("check", 0, key) for key in ("name", "why", "one_of", "mend", "when")] == [
        4,
        5,
        9,
        13,
        15,
    ]
    assert lines.of_table("check", 1) == 17
    assert [lines.of_key("check", 1, key) for key in ("when", "quoted key", "fact")] == [18, 19, 20]
    assert lines.of_key("check", 1, "absent") == 17
    assert lines.of_key("waiver", 0, "until") == 22


@given(st.lists(st.text(), max_size=4))
def test_any_strings_leave_the_lines_right(values: list[str]) -> None:
    text, rows = "", []
    for number, value in enumerate(values):
        clean = value.encode("utf-8", "replace").decode()
        rows.append(text.count("\n") + 1)
        text += f"k{number} = [\n  {json.dumps(clean, ensure_ascii=False).replace(chr(127), '')},\n  '''\n[x]\n''' ]\n"
    tomllib.loads(text)
    lines = Lines(text)
    assert [lines.of_key("", 0, f"k{number}") for number in range(len(values))] == rows


def test_default_checks_are_complete() -> None:
    checks = default_checks()
    assert len(checks) >= 60
    for check in checks:
        assert check.why, check.name
        assert check.mend, check.name
        assert check.reference, check.name
        assert check.origin.startswith("defaults/")
    areas = {check.origin.partition(":")[0].removeprefix("defaults/") for check in checks}
    assert areas >= {
        f"{area}.toml"
        for area in [
            "system",
            "processors",
            "memory",
            "software",
            "clock",
            "pci",
            "links",
            "ethernet",
            "routes",
            "rdma",
            "modules",
            "gpus",
            "counters",
        ]
    }
