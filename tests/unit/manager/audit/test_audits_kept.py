"""Audits in files: whole or not at all, the last ones only, damage said."""

from pathlib import Path

import pytest

from cwdp.errors import ManagerError
from cwdp.shared.audit.facts import HostFacts
from manager.audit.results import Audit
from manager.audit.service.kept import FACTS, KEPT, VERDICTS, Files, Finished

NOBODY = Audit(results=[], hosts={}, passed={}, not_applicable={})
TOLD = [HostFacts(host="h1", taken_s=1.0, subjects=[])]


def _finished(number: int) -> Finished:
    return Finished(
        number=number,
        level="facts",
        by="ann",
        began_s=1.0,
        ended_s=2.0,
        hosts=["h1", "h2"],
        audit=NOBODY,
        network=NOBODY,
    )


def test_what_is_kept_is_read(tmp_path: Path) -> None:
    files = Files(tmp_path / "audits")
    assert files.numbers() == []
    files.keep(_finished(3), TOLD)
    assert files.numbers() == [3]
    assert files.read(3) == _finished(3)
    assert files.facts(3) == TOLD


def test_the_oldest_go(tmp_path: Path) -> None:
    files = Files(tmp_path)
    for number in range(1, KEPT + 4):
        files.keep(_finished(number), TOLD)
    assert files.numbers() == list(range(4, KEPT + 4))
    assert len(list(tmp_path.iterdir())) == 2 * KEPT
    with pytest.raises(ManagerError, match="no audit 1 here"):
        files.read(1)


@pytest.mark.parametrize("damage", [b"", b"garbage"])
def test_damage_is_said(tmp_path: Path, damage: bytes) -> None:
    files = Files(tmp_path)
    files.keep(_finished(1), TOLD)
    for ending in (VERDICTS, FACTS):
        (tmp_path / f"000001{ending}").write_bytes(damage)
    with pytest.raises(ManagerError, match="audit 1 cannot be read"):
        files.read(1)
    with pytest.raises(ManagerError, match="audit 1 cannot be read"):
        files.facts(1)


def test_what_is_no_audit_is_passed_over(tmp_path: Path) -> None:
    for name in (f"notes{VERDICTS}", f"000002{VERDICTS}.new", "README"):
        (tmp_path / name).touch()
    assert Files(tmp_path).numbers() == []
