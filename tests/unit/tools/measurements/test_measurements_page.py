"""The page's blocks are written anew from results, and what was run is stored and shown as it was."""

import json
import sys
from pathlib import Path

import pytest

from cwdp.errors import ConfigError, CwdpError
from tools.measurements import page, results, running
from tools.measurements.catalogue import Measurement, Row, Table, named
from tools.measurements.figures import LACKING
from tools.measurements.results import Machine, Result, without_private

MACHINE = Machine("Z80", 4, "Linux 6.6.6")
FIRST = Measurement(
    "first",
    "python -m tools.sim solve --json",
    (Row("time", "a", unit="s", at_most=2), Row("memory", "b", unit="MiB")),
)
SECOND = Measurement("second", "cwdp lab run slices --json", (Row("rate", "c", at_least=5),))
BENCH = Measurement("bench-one", "python -m tools.bench one", (Row("cost", "[name=x].value"),))
TABLES = [Table("both", (FIRST, SECOND)), Table("bench", (BENCH,))]
PAGE = """# Title

<!-- results: both -->
what was here before
<!-- end -->

Prose that stays.

<!-- results: bench -->
<!-- end -->
<!-- results: durations -->
<!-- end -->
"""


def result(command: str, found: object, took_s: float = 70.0) -> Result:
    return Result(command, "2031-02-03T04:05:06Z", took_s, 0.25, MACHINE, found)


def test_blocks_are_written_anew_and_prose_stays() -> None:
    known = {"first": result(FIRST.command, {"a": 3, "b": 4096.4})}
    text = page.rewritten(PAGE, TABLES, known)
    assert "| time | **3 s** | at most 2 s | `first` |" in text
    assert "| memory | 4,096 MiB |  | `first` |" in text
    assert "| rate | not measured yet | at least 5 | `second` |" in text
    assert f"- `first`: `{FIRST.command}`; 1 min on 2031-02-03, 4 x Z80, Linux 6.6.6, 25 % idle" in text
    assert f"- `second`: `{SECOND.command}`; not measured yet" in text
    assert "- `make bench`: 1 measurements, not measured yet" in text
    assert "- `python -m tools.measurements run`: 3 measurements, 1 of them measured so far: 1 min" in text
    assert text.count("Prose that stays.") == 1
    assert "before" not in text
    assert page.rewritten(text, TABLES, known) == text
    assert page.blocks(text) == page.blocks(PAGE) == ["both", "bench", "durations"]


def test_a_result_of_another_command_does_not_count() -> None:
    known = {"first": result(FIRST.command + " --seed 2", {"a": 1, "b": 2})}
    assert "| time | not measured yet |" in page.rewritten(PAGE, TABLES, known)


def test_a_block_without_a_table_is_an_error() -> None:
    with pytest.raises(ConfigError, match="nothing"):
        page.rewritten("<!-- results: nothing -->\n<!-- end -->\n", TABLES, {})


def test_a_figure_that_a_result_lacks_is_shown_as_lacking() -> None:
    text = page.rewritten(PAGE, TABLES, {"first": result(FIRST.command, {"a": 1})})
    assert f"| memory | {LACKING} |  | `first` |" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (1_500, "25 min"),
        (3_600, "1 h 00 min"),
        (9_120, "2 h 32 min"),
    ],
)
def test_durations_are_rounded(seconds: float, text: str) -> None:
    assert page.duration(seconds) == text


def test_measurements_are_chosen_by_patterns_in_their_own_order() -> None:
    assert named(TABLES, ()) == [FIRST, SECOND, BENCH]
    assert named(TABLES, ("bench-*", "f*")) == [FIRST, BENCH]
    with pytest.raises(ConfigError, match="third"):
        named(TABLES, ("first", "third"))


def test_a_result_is_read_as_it_was_stored(tmp_path: Path) -> None:
    one, other = result("c", {"a": [1, None, 2.5]}), result("d", [])
    for stored in (other, one):
        results.store(tmp_path / "new", FIRST, stored)
    results.store(tmp_path / "new", SECOND, other)
    assert results.load(tmp_path / "new") == {"first": one, "second": other}
    assert results.load(tmp_path / "none") == {}


def test_nothing_private_is_kept() -> None:
    found = {
        "log": "long",
        "runs": [{"log": 1, "error": "see /home/someone/x/agent.log on box7, not box71"}],
        "link": "l1/nic0 > l2/nic0",
        "share": 0.5,
    }
    assert without_private(found, ("log",), "box7") == {
        "runs": [{"error": "see agent.log on localhost, not box71"}],
        "link": "l1/nic0 > l2/nic0",
        "share": 0.5,
    }


def test_the_machine_is_told_in_words() -> None:
    machine = results.this_machine()
    assert machine.processors > 0
    assert machine.processor
    assert machine.kernel.startswith("Linux ")


class TestRunning:
    """A command is run to its end, with what it prints."""

    @pytest.fixture(autouse=True)
    def as_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A measurement's command is a Python program here."""
        monkeypatch.setattr(running, "argv", lambda measurement: [sys.executable, "-c", measurement.command])

    def test_what_a_command_prints_is_kept_with_its_circumstances(self) -> None:
        one = Measurement(
            "m",
            '__import__("time").sleep(0.2); print(\'{"a": 7, "log": "x"}\')',
            (Row("", "a"),),
            without=("log",),
        )
        done = running.measure(one, pytest.fail)
        assert done.result == {"a": 7}
        assert done.command == one.command
        assert 0 <= done.idle_share <= 1
        assert done.took_s >= 0.2
        assert done.started.endswith("Z")

    def test_a_result_that_misses_a_target_is_kept_though_its_command_says_so_by_its_status(self) -> None:
        one = Measurement("m", "print('{\"a\": 7}'); raise SystemExit(1)", (Row("", "a", at_most=0),))
        assert running.measure(one, pytest.fail).result == {"a": 7}

    def test_the_lines_of_a_bench_part_are_figures_and_are_printed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        figures = [{"name": "x", "value": 1}, {"name": "y", "value": 2}]
        program = "\n".join(f"print({json.dumps(json.dumps(figure))})" for figure in figures)
        monkeypatch.setattr(running, "argv", lambda _: [sys.executable, "-c", program])
        printed: list[str] = []
        assert running.measure(BENCH, printed.append).result == figures
        assert [json.loads(line) for line in printed] == figures

    @pytest.mark.parametrize(
        ("program", "why"),
        [
            ("print('{}'); raise SystemExit(3)", "status 3"),
            ("print('half'); raise SystemExit(1)", "status 1"),
            ("print('no json')", "no JSON"),
        ],
    )
    def test_what_cannot_be_kept_is_an_error(self, program: str, why: str) -> None:
        with pytest.raises(CwdpError, match=why):
            running.measure(Measurement("m", program, (Row("", "a"),)), pytest.fail)


def test_commands_run_with_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.os, "geteuid", lambda: 1000)
    assert running.argv(FIRST) == [sys.executable, "-m", "tools.sim", "solve", "--json"]
    assert running.argv(SECOND) == ["sudo", sys.executable, "-m", "cwdp", "lab", "run", "slices", "--json"]
    monkeypatch.setattr(running.os, "geteuid", lambda: 0)
    assert running.argv(BENCH) == [sys.executable, "-m", "tools.bench", "one"]
