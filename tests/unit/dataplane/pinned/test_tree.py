"""Trees of pinned objects, which come and go while they are listed."""

import shutil
from pathlib import Path

import pytest

from cwdp.dataplane.pinned import tree


def test_a_folder_that_goes_away_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    for cookie in ("1", "2"):
        (tmp_path / cookie / "roce0").mkdir(parents=True)
    (tmp_path / "file").touch()
    listed = tree._below()
    first = next(listed)
    other = {"1": "2", "2": "1"}[first.parent.name]
    shutil.rmtree(tmp_path / other)
    assert list(listed) == []
    shutil.rmtree(tmp_path)
    assert list(tree._below()) == []
