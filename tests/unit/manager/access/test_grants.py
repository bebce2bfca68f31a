"""What is kept of tokens and certificates, and what cannot be given."""

import time
from pathlib import Path

import msgspec
import pytest

from cwdp.errors import ConfigError, IdentityError, ManagerError
from manager.access import grants as module
from manager.access.grants import Grant, Grants, digest, granted, new_token


def _grant(name: str, token: str = "", days: float = 1.0) -> Grant:
    return granted(name, "viewer", "token", digest((token or new_token()).encode()), days=days, by="root")


def test_what_was_given_outlives_a_restart_and_no_token_is_kept(tmp_path: Path) -> None:
    path, token = tmp_path / "access.json", new_token()
    grants = Grants(path)
    grants.add(_grant("alice", token))
    again = Grants(path)
    assert again.all() == grants.all()
    assert again.find("token", digest(token.encode())) is not None
    assert again.find("certificate", digest(token.encode())) is None
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    grants.drop("alice")
    assert Grants(path).all() == []


def test_a_name_is_one_credentials_until_that_has_expired() -> None:
    grants = Grants(None)
    grants.add(_grant("alice"))
    with pytest.raises(ConfigError, match="already") as caught:
        grants.add(_grant("alice"))
    assert "revoke-access alice" in caught.value.hint
    ended = msgspec.structs.replace(_grant("bob"), expires_s=time.time() - 1)
    grants.add(ended)
    grants.add(_grant("bob"))
    assert [each.name for each in grants.all()] == ["alice", "bob"]


def test_what_has_long_expired_is_forgotten() -> None:
    grants = Grants(None)
    old = msgspec.structs.replace(_grant("old"), expires_s=time.time() - 40 * 86_400)
    recent = msgspec.structs.replace(_grant("recent"), expires_s=time.time() - 10 * 86_400)
    for each in (old, recent, _grant("new")):
        grants.add(each)
    assert [each.name for each in grants.all()] == ["new", "recent"]


def test_there_is_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    grants = Grants(None)
    for number in range(3):
        grants.add(_grant(f"n{number}"))
    with pytest.raises(ConfigError, match="3 credentials"):
        grants.add(_grant("n3"))


@pytest.mark.parametrize("name", ["", " ", "a b", "a\nb", "../x", "-x", "x" * 65, "é", "a(token)", 'a"'])
def test_names_that_nobody_can_have(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        _grant(name)


@pytest.mark.parametrize("days", [0, -1, 826, float("nan"), float("inf")])
def test_times_for_which_nothing_is_given(days: float) -> None:
    with pytest.raises(ConfigError, match="days"):
        _grant("alice", days=days)


@pytest.mark.parametrize("kept", [b"", b"x", b"{}", b'[{"name": "a"}]', b"\xff"])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, kept: bytes) -> None:
    path = tmp_path / "access.json"
    path.write_bytes(kept)
    with pytest.raises(ManagerError, match="cannot be read") as caught:
        Grants(path)
    assert caught.value.hint


def test_what_cannot_be_saved_is_not_given_and_yet_taken_from_the_bus(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    grants = Grants(tmp_path / "file" / "access.json")
    with pytest.raises(IdentityError, match="cannot write"):
        grants.add(_grant("alice"))
    assert (grants.all(), grants.revision) == ([], 0)
    other = Grants(None)
    other.add(_grant("bob"))
    grants.load(other.dump())
    assert grants.all() == other.all()


def test_tokens_are_long_and_differ() -> None:
    tokens = {new_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert min(map(len, tokens)) > 43
