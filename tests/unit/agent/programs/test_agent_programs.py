"""What is known of processes: when they were started, and with what environment."""

import os
import subprocess
from pathlib import Path

from cwdp.agent.programs.programs import environment, started
from tools.waiting import wait_for


def test_a_process_was_started_after_this_one() -> None:
    mine = started(os.getpid())
    with subprocess.Popen(("sleep", "60"), env={"A": "1=2", "B": ""}) as other:
        theirs = started(other.pid)
        assert mine is not None
        assert theirs is not None
        assert mine < theirs
        assert wait_for(lambda: environment(other.pid) == {"A": "1=2", "B": ""}, 5.0, poll_s=0.01)
        other.kill()
    assert started(other.pid) is None
    assert environment(other.pid) == {}


def test_a_name_may_be_anything(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    numbers = " ".join(str(n) for n in range(4, 30))
    (tmp_path / "7/stat").write_text(f"7 (a) b (c) S {numbers}\n")
    assert started(7, tmp_path) == 22
    (tmp_path / "7/stat").write_text("7 (a")
    assert started(7, tmp_path) is None
