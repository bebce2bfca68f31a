"""What becomes of a lab's processes that keep dying."""

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cwdp.errors import LabError
from tools.lab import LabSpec, fleet

PATIENCE_S = 20.0
MANY = 20


def _lab(run_dir: Path) -> Any:
    """One host, whose every process says why it ends and does."""
    host = SimpleNamespace(name="h1", nics=[SimpleNamespace(name="nic0")], clock_file=run_dir / "h1.npz")

    def popen(_node: str, _command: list[str], **files: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(["sh", "-c", "echo out of beans; exit 3"], **files)

    return SimpleNamespace(
        spec=LabSpec(), hosts=[host], run_dir=run_dir, mgmt_address="192.0.2.1", popen=popen
    )


def test_it_is_said_which_and_their_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "RESTART_AFTER_S", 0.0)
    monkeypatch.setattr(fleet, "POLL_S", 0.01)
    end = time.monotonic() + PATIENCE_S
    with fleet.Fleet(_lab(tmp_path)) as running:
        while running.restarts < MANY and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(LabError) as caught:
            running.check()
    assert "h1 " in caught.value.message
    assert "manager " in caught.value.message
    assert "with status 3" in caught.value.message
    assert "out of beans" in caught.value.message
