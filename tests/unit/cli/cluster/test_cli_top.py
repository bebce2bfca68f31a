"""`cwdp top`: what fits which screen, what hostile names do, and what becomes of it without a manager."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from waiting import until

from cwdp.cli import main
from cwdp.cli.cluster import top
from cwdp.cli.cluster.screen import fitted, harmless, room, wrapped
from cwdp.errors import ManagerError

COMMAND = "cwdp steer set --host h4 --dev nic0 --dst 10.1.0.2 --qpn 14202533 --sport 49242"
FINDING = {
    "number": 3,
    "kind": "silent",
    "severity": "critical",
    "title": "10.254.1.1 - 10.254.2.2 drops everything, though it has carrier",
    "act": [{"command": COMMAND, "text": "Move it."}, {"command": None, "text": "Check optics."}],
    "touches": {"queue_pairs": 4, "jobs": ["h1", "h2"]},
}
LINK = {
    "a": "10.254.1.1",
    "b": "10.254.2.2",
    "state": "silent",
    "queue_p50_ns": 20_000,
    "queue_p99_ns": None,
    "load_bps": 12_300_000,
    "share": 0.75,
    "loss": 0.02,
}
QUEUE_PAIR = {
    "host": "h3",
    "nic": "nic0",
    "peer": None,
    "peer_addr": "10.3.0.1",
    "qpn": 10_793_494,
    "spread_ns": 201_000_000,
    "owd": {"p99_ns": 201_005_000},
    "bps": 160_000.0,
    "sport": 50_655,
    "job": "h1",
}
JOB = {
    "name": "h1",
    "is_inferred": True,
    "hosts": 4,
    "queue_pairs": 24,
    "bps": 48e6,
    "spread_ns": None,
    "findings": 1,
}


def fleet(**changes: Any) -> dict[str, Any]:
    return {
        "at_s": 1_795_254_130.3,
        "cluster": "m1",
        "verdict": {"severity": "critical", "text": "1 critical: 10.254.1.1 - 10.254.2.2 drops everything."},
        "notices": [{"state": "planner_off", "severity": "info", "text": "The planner is off."}],
        "hosts": {"up": 7, "lost": 1},
        "nics": {"probed": 6, "not_probed": 2, "known": 8},
        "clocks": {"synced": 7, "holdover": 1, "unsynced": 0, "set_aside": 0},
        "queue_pairs": 48,
        "findings": [FINDING],
        "finding_count": 1,
        "worst_links": [LINK] * 20,
        "slowest_queue_pairs": [QUEUE_PAIR] * 20,
        "jobs": [JOB] * 2,
    } | changes


def lines(answer: Any, width: int, height: int) -> list[str]:
    """What a terminal of a size shows."""
    out = Console(width=width, height=height, force_terminal=True, color_system=None)
    with out.capture() as captured:
        out.print(top.frame(answer, None, 0.0, out))
    return captured.get().splitlines()


def test_a_usual_terminal_shows_all_of_it() -> None:
    shown = "\n".join(lines(fleet(), 80, 24))
    assert len(shown.splitlines()) == 23
    for told in (
        "7 hosts (1 lost), 6/8 NICs probed, 48 QPs, 7 clocks (1 holdover)",
        "1 critical: 10.254.1.1 - 10.254.2.2 drops everything.",
        "The planner is off.",
        "worst links (",
        "slowest queue pairs (",
        "10.254.1.1 > 10.254.2.2",
        "h3/nic0 > 10.3.0.1",
        "201.0 ms",
        "h1 (inferred)",
    ):
        assert told in shown
    unbroken = re.sub(r"\s+", " ", shown)
    assert COMMAND in unbroken
    assert "4 QPs; jobs h1, h2" in unbroken
    assert len(re.findall("silent", shown)) >= 3


@given(width=st.integers(1, 200), height=st.integers(1, 80), findings=st.integers(0, 9))
def test_every_screen_is_kept_to(width: int, height: int, findings: int) -> None:
    shown = lines(fleet(findings=[FINDING] * findings, finding_count=findings), width, height)
    assert len(shown) <= max(height - 1, 1)
    assert all(cell_len(line) <= width for line in shown)


@given(st.text(max_size=60), st.integers(20, 100))
def test_names_are_data_whatever_is_in_them(name: str, width: int) -> None:
    hostile = fleet(
        cluster=name,
        verdict={"severity": "ok", "text": name},
        notices=[{"state": "x", "severity": "info", "text": name}],
        findings=[FINDING | {"title": name, "act": [{"command": name, "text": ""}]}],
        worst_links=[LINK | {"a": name, "b": name}],
        slowest_queue_pairs=[QUEUE_PAIR | {"host": name, "peer": name, "job": name}],
        jobs=[JOB | {"name": name}],
    )
    shown = lines(hostile, width, 60)
    assert all(line.isprintable() for line in shown)
    assert all(cell_len(line) <= width for line in shown)


def test_control_characters_and_markup_are_shown_as_they_are() -> None:
    hostile = fleet(jobs=[JOB | {"name": "[red]a\x1b[2J\nb[/red]"}])
    assert any(r"[red]a\x1b[2J\nb[/red]" in line for line in lines(hostile, 80, 40))


def test_what_is_not_known_is_a_dash() -> None:
    unknown = dict.fromkeys(("queue_p50_ns", "queue_p99_ns", "load_bps", "share", "loss"))
    answer = fleet(
        hosts=None,
        clocks=None,
        nics={"probed": None, "known": 8},
        worst_links=[LINK | unknown],
        slowest_queue_pairs=[QUEUE_PAIR | {"owd": None, "spread_ns": None, "bps": None, "job": None}],
    )
    shown = "\n".join(lines(answer, 80, 24))
    assert "None" not in shown
    assert shown.count("  -") >= 8


@pytest.mark.parametrize(
    ("text", "width", "cut"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghij", 5, "ab…ij"),
        ("abcdefghij", 0, ""),
        ("漢字漢字漢字", 7, "漢 …字"),
    ],
)
def test_names_are_cut_in_the_middle(text: str, width: int, cut: str) -> None:
    assert fitted(text, width).replace(" ", "") == cut.replace(" ", "")
    assert cell_len(fitted(text, width)) <= width


@given(st.text(st.characters(codec="ascii"), max_size=200), st.integers(3, 40))
def test_nothing_is_lost_in_wrapping(text: str, width: int) -> None:
    clean = harmless(text)
    assert "".join(wrapped(clean, width)).replace(" ", "") == clean.replace(" ", "")


@given(st.integers(0, 100), st.lists(st.integers(1, 4), max_size=8), st.lists(st.integers(1, 20), max_size=3))
def test_lines_are_shared_out_and_none_is_left_over(lines: int, found: list[int], rows: list[int]) -> None:
    found_lines, rooms = room(lines, found, rows)
    wanted = (1 + sum(found) if found else 0) + sum(each + 1 for each in rows)
    assert found_lines + sum(rooms) <= lines
    if lines >= wanted:
        assert found_lines + sum(rooms) == wanted


class Manager:
    """Answers `/v1/fleet` on loopback, when it is up."""

    def __init__(self) -> None:
        self.answer = fleet()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        manager = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(manager.answer).encode()
                self.send_response(200 if self.path == "/v1/fleet" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


@pytest.fixture
def manager() -> Iterator[Manager]:
    manager = Manager()
    manager.start()
    yield manager
    manager.stop()


def test_once_and_json_print_once(manager: Manager) -> None:
    for arguments in (["--once"], []):
        done = CliRunner().invoke(main, ["top", "--manager", manager.url, *arguments])
        assert done.exit_code == 0
        assert "\x1b" not in done.output
        assert done.output.count("10.254.1.1 > 10.254.2.2") == 20
    done = CliRunner().invoke(main, ["top", "--manager", manager.url, "--json"])
    assert json.loads(done.output) == manager.answer


@pytest.mark.parametrize("argument", ["--once", "--json"])
def test_once_without_a_manager_is_an_error(argument: str) -> None:
    done = CliRunner().invoke(main, ["top", "--manager", "http://127.0.0.1:1", argument])
    assert done.exit_code == 1
    assert "no manager answers" in done.output


def test_a_wrong_url_is_an_error_at_once() -> None:
    done = CliRunner().invoke(main, ["top", "--manager", "ftp://x"])
    assert done.exit_code == 2


def test_the_last_screen_stays_below_the_words() -> None:
    out = Console(width=80, height=24, force_terminal=True, color_system=None)
    with out.capture() as captured:
        out.print(top.frame(fleet(), ManagerError("no manager answers", "start it"), 12.3, out))
    shown = captured.get().splitlines()
    assert len(shown) <= 23
    assert shown[:3] == [
        "no manager answers",
        "start it",
        "Trying again; no answer for 12 s. Below is the last.",
    ]
    assert any("1 critical" in line for line in shown[3:])


class Terminal:
    """A program on a terminal of its own, and all that it has written."""

    def __init__(self, rows: int, columns: int, argv: list[str]) -> None:
        self.written = b""
        self._controller, tty = pty.openpty()
        fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {
            key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            argv, stdin=tty, stdout=tty, stderr=tty, env=environment | {"TERM": "xterm-256color"}
        )
        os.close(tty)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def last_screen(self) -> str:
        """What the newest whole frame shows."""
        frames = self.written.decode(errors="replace").split("\x1b[H")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frames[-2] if len(frames) > 2 else frames[-1])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        os.close(self._controller)

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._controller, 65536)
            except OSError:
                return
            if not chunk:
                return
            self.written += chunk


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_live_it_outlasts_its_manager_and_gives_the_terminal_back(
    manager: Manager, number: signal.Signals
) -> None:
    argv = [sys.executable, "-m", "cwdp", "top", "--interval", "0.1", "--manager", manager.url]
    terminal = Terminal(24, 80, argv)
    try:
        until(lambda: "worst links" in terminal.last_screen())
        manager.stop()
        until(lambda: "Trying again" in terminal.last_screen())
        assert "no manager answers" in terminal.last_screen()
        manager.answer = fleet(verdict={"severity": "ok", "text": "All is well again."})
        manager.start()
        until(lambda: "All is well again." in terminal.last_screen())
        assert "Trying again" not in terminal.last_screen()
        terminal.process.send_signal(number)
        assert terminal.process.wait(30) == 0
        until(lambda: terminal.written.rstrip().endswith((b"\x1b[?1049l\x1b[?25h", b"\x1b[?25h\x1b[?1049l")))
    finally:
        terminal.close()
