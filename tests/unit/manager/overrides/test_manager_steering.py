"""What operators want of queue pairs: what is refused, and what the file keeps."""

import json
from pathlib import Path
from typing import Any

import pytest

from cwdp.errors import ConfigError, ManagerError
from manager.overrides.steering import SteerOverride, SteerTable, read_steer_override

OVERRIDE = {"host": "a", "nic": "eth0", "dst": "10.0.0.2", "qpn": 7, "sport": 50_000}


def _override(**changes: Any) -> SteerOverride:
    return read_steer_override(json.dumps(OVERRIDE | changes).encode())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qpn": 1 << 24}, r"<= 16777215 - at `\$.qpn`"),
        ({"qpn": -1}, r">= 0 - at `\$.qpn`"),
        ({"sport": 0}, r">= 1 - at `\$.sport`"),
        ({"sport": 70_000}, r"<= 65535 - at `\$.sport`"),
        ({"backup_sport": 49_151}, "backup_sport"),
        ({"backup_sport": 50_000}, "cannot be its own backup"),
        ({"dst": "h2"}, "no IP address"),
        ({"dst": "fe80::1%eth0"}, "no IP address"),
        ({"host": 5}, "Expected `str`"),
        ({"nonsense": 1}, "unknown field `nonsense`"),
    ],
)
def test_an_impossible_override_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _override(**changes)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'{"host": "a"}'])
def test_what_is_no_override_is_refused(body: bytes) -> None:
    with pytest.raises(ConfigError):
        read_steer_override(body)


def test_an_address_has_one_form() -> None:
    assert _override(dst="FD00:0::2").key == _override(dst="fd00::2").key
    assert _override(dst="::ffff:10.0.0.2").key == _override(dst="10.0.0.2").key


def test_the_file_keeps_what_was_wanted(tmp_path: Path) -> None:
    path = tmp_path / "steer.json"
    table = SteerTable(path)
    table.set(_override())
    table.set(_override(host="b", flow_label=True))
    table.set(_override(sport=50_005))
    assert not table.unset(_override(qpn=8).key)
    assert SteerTable(path).all() == [_override(sport=50_005), _override(host="b", flow_label=True)]
    assert SteerTable(path).all("b") == [_override(host="b", flow_label=True)]
    assert table.unset(_override().key)
    assert SteerTable(path).messages() == {"b": [_override(host="b", flow_label=True).message()]}


def test_what_cannot_be_kept_is_not_in_force(tmp_path: Path) -> None:
    table = SteerTable(tmp_path / "missing" / "steer.json")
    with pytest.raises(ManagerError, match="cannot write"):
        table.set(_override())
    assert len(table) == 0


def test_a_broken_file_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "steer.json"
    path.write_text("[{")
    with pytest.raises(ManagerError, match=r"steer.json cannot be read"):
        SteerTable(path)
    assert path.read_text() == "[{"
