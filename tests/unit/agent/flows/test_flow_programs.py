"""Programs that hang, fail, talk too much or leave children behind."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from cwdp.agent.flows.programs import MOST_SAID_BYTES, ProgramError, said_by

SOON_S = 5.0


def said(script: str, *, within_s: float = SOON_S, told: bytes = b"{}") -> bytes:
    return asyncio.run(said_by(["sh", "-c", script], told, within_s))


def is_gone(pid: int) -> bool:
    """Whether a process is no more, or a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_what_a_program_is_told_and_says() -> None:
    assert said("cat", told=b"some words") == b"some words"


def test_one_that_does_not_listen() -> None:
    assert said("exec <&-; echo done", told=bytes(1 << 20)) == b"done\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo a >&2; echo the last >&2; exit 1", "sh failed: the last"),
        ("exit 3", "sh failed: status 3"),
        ("kill -9 $$", "sh failed: status -9"),
    ],
    ids=["words", "status", "signal"],
)
def test_one_that_fails_is_told_by_its_last_words(script: str, why: str) -> None:
    with pytest.raises(ProgramError, match=why):
        said(script)


def test_one_that_is_not_there() -> None:
    with pytest.raises(ProgramError, match="/nowhere/program cannot be started: No such file or directory"):
        asyncio.run(said_by(["/nowhere/program"], b"", SOON_S))


def test_one_that_hangs_is_killed() -> None:
    began_s = time.monotonic()
    with pytest.raises(ProgramError, match=r"did not end within 0\.2 s and was killed"):
        said("sleep 1000", within_s=0.2)
    assert time.monotonic() - began_s < SOON_S


def test_one_that_says_too_much_is_ended_at_once() -> None:
    began_s = time.monotonic()
    with pytest.raises(ProgramError, match=f"more than {MOST_SAID_BYTES} bytes"):
        said("yes", within_s=60.0)
    assert time.monotonic() - began_s < 30.0


@pytest.mark.parametrize("hangs", [False, True], ids=["ends", "hangs"])
def test_children_do_not_outlive_it(tmp_path: Path, hangs: bool) -> None:
    """Though they have its standard output open."""
    pid_file = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {pid_file}; echo said; {'wait' if hangs else 'exit 0'}"
    if hangs:
        with pytest.raises(ProgramError, match="did not end"):
            said(script, within_s=0.5)
    else:
        assert said(script) == b"said\n"
    pid = int(pid_file.read_text())
    until_s = time.monotonic() + SOON_S
    while not is_gone(pid) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert is_gone(pid)


def test_it_has_a_process_group_of_its_own() -> None:
    group = int(said("cut -d' ' -f5 /proc/$$/stat"))
    assert group != os.getpgrp()
