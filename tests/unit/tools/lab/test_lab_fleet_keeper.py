"""What becomes of a lab's processes that keep dying."""

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from cwdp.errors import ConfigError, LabError
from tools.clocks import ClockKind
from tools.lab import LabSpec
from tools.lab.fleet import processes
from tools.lab.fleet.cli import start
from tools.lab.topology import Topology

PATIENCE_S = 20.0
MANY = 20


def _lab(run_dir: Path, clocks: ClockKind = "steady") -> Any:
    """One host, whose every process says why it ends and does."""
    host = SimpleNamespace(name="h1", nics=[SimpleNamespace(name="nic0")], clock_file=run_dir / "h1.npz")

    def popen(_node: str, _command: list[str], *, part: str, **files: Any) -> "subprocess.Popen[bytes]":
        assert part == processes.FLEET
        return subprocess.Popen(["sh", "-c", "echo out of beans; exit 3"], **files)

    return SimpleNamespace(
        spec=LabSpec(clocks=clocks),
        topology=Topology(LabSpec(clocks=clocks)),
        hosts=[host],
        run_dir=run_dir,
        mgmt_address="192.0.2.1",
        popen=popen,
        require_alone=lambda _part: None,
    )


def test_agents_of_a_lab_with_rough_clocks_stand_still_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STALL_EVERY_S", (0.05, 0.06))
    monkeypatch.setattr(processes, "STALL_S", 0.2)
    lab = _lab(tmp_path, "rough")
    lab.popen = lambda *_a, part, **files: (
        part and subprocess.Popen(["sleep", "60"], start_new_session=True, **files)
    )
    end, states = time.monotonic() + PATIENCE_S, set()
    with processes.Fleet(lab) as running:
        while not {"T", "S"} <= states and time.monotonic() < end:
            states.add(Path(f"/proc/{running.process('h1').pid}/stat").read_text().split()[2])
    assert {"T", "S"} <= states
    assert running.restarts == 0


def test_it_is_said_which_and_their_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "RESTART_AFTER_S", 0.0)
    monkeypatch.setattr(processes, "POLL_S", 0.01)
    with processes.Fleet(_lab(tmp_path)) as running:
        until(lambda: running.restarts >= MANY, "many restarts")
        with pytest.raises(LabError) as caught:
            running.check()
    assert "h1 " in caught.value.message
    assert "manager " in caught.value.message
    assert "with status 3" in caught.value.message
    assert "out of beans" in caught.value.message


@pytest.mark.parametrize("page", ["0.0.0.0:9465", "10.0.0.1:9465", "[::]:9465", "manager.example:9465"])
def test_a_labs_page_which_asks_for_no_token_is_on_loopback_only(page: str) -> None:
    with pytest.raises(ConfigError, match="other machines") as caught:
        start("no-such-lab", planner=True, page=page)
    assert "ssh -L" in caught.value.hint
