"""A process's credential and its file: for its owner only, its own, and for now."""

import ssl
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import nkeys
import pytest

from cwdp.errors import IdentityError
from cwdp.shared.identity import jwt
from cwdp.shared.identity.credential import Credential, load
from manager.identity.authority import Authority

AUTHORITY = Authority.new()


def _saying(**claims: Any) -> Credential:
    key = jwt.new_key(nkeys.PREFIX_BYTE_USER)
    said = {"sub": jwt.public_key(key), "name": "h1", **claims}
    own = AUTHORITY.host_credential("h1")
    return replace(own, token=jwt.sign(said, AUTHORITY.control_key), seed=jwt.seed(key))


def test_it_is_saved_and_loaded_and_its_owners_alone(tmp_path: Path) -> None:
    credential, path = AUTHORITY.host_credential("h1", "pod-7"), tmp_path / "new" / "agent.creds"
    credential.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load(path) == credential
    assert (credential.name, credential.pod, credential.inbox) == ("h1", "pod-7", "_INBOX.pod-7.h1")
    path.chmod(0o644)
    AUTHORITY.host_credential("h1").save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["agent.creds"]
    assert credential.seed not in repr(credential)


def test_a_managers_is_of_no_pod() -> None:
    credential = AUTHORITY.manager_credential("ops")
    assert (credential.name, credential.pod, credential.inbox) == ("ops", "", "_INBOX")
    assert credential.expires_s is None
    credential.require_valid()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_one_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "agent.creds"
    AUTHORITY.host_credential("h1").save(path)
    path.chmod(mode)
    with pytest.raises(IdentityError, match="can be read by others") as caught:
        load(path)
    assert caught.value.hint == f"run: chmod 600 {path}"


def test_one_that_is_not_there_is_named_with_the_next_step(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(IdentityError, match="cannot read the credential") as caught:
            load(path)
        assert "cwdp agent join" in caught.value.hint


def test_what_is_no_credential_is_refused_without_a_word_of_its_secret(tmp_path: Path) -> None:
    path, good = tmp_path / "agent.creds", AUTHORITY.host_credential("h1")
    good.save(path)
    text = path.read_text()
    for content in (
        b"",
        b"\xff\xfe",
        b"nonsense",
        text.split("-----BEGIN CERTIFICATE")[0].encode(),
        text.replace(good.seed, good.seed[:-9]).encode(),
        text.replace(good.seed, "x").encode(),
        text.replace(good.seed, "").encode(),
        text.replace(good.seed, jwt.public_key(good.key)).encode(),
        text.replace(good.token, good.token[: len(good.token) // 2]).encode(),
        text.replace(good.token, "a.b.c").encode(),
    ):
        path.write_bytes(content)
        with pytest.raises(IdentityError) as caught:
            load(path)
        assert caught.value.hint
        assert good.seed[2:-9] not in str(caught.value)


def test_a_token_of_another_key_is_refused(tmp_path: Path) -> None:
    one, other = AUTHORITY.host_credential("h1"), AUTHORITY.host_credential("h1")
    replace(one, seed=other.seed).save(tmp_path / "agent.creds")
    with pytest.raises(IdentityError, match="its token is of another key"):
        load(tmp_path / "agent.creds")


def test_one_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IdentityError, match="cannot write"):
        AUTHORITY.host_credential("h1").save(tmp_path / "file" / "agent.creds")


@pytest.mark.parametrize(
    ("ago_s", "words"),
    [(5, "seconds"), (310, "5 minutes"), (10_000, "3 hours"), (86_400 * 9, "9 days")],
)
def test_one_that_has_expired_says_since_when_and_what_to_do(ago_s: int, words: str) -> None:
    credential = _saying(iat=int(time.time()) - 10**6, exp=int(time.time()) - ago_s)
    with pytest.raises(IdentityError, match=f"of h1 expired .*{words} ago") as caught:
        credential.require_valid()
    assert "clock" in caught.value.hint
    assert "cwdp fleet invite" in caught.value.hint


@pytest.mark.parametrize("ahead_s", [-3600, 0, 30])
def test_one_that_was_signed_about_now_holds(ahead_s: int) -> None:
    _saying(iat=int(time.time()) + ahead_s, exp=int(time.time()) + 3600).require_valid()


def test_one_that_was_signed_in_this_clocks_future_says_so() -> None:
    with pytest.raises(IdentityError, match="ahead of this host's clock") as caught:
        _saying(iat=int(time.time()) + 7200).require_valid()
    assert "clock" in caught.value.hint


def test_servers_are_spoken_to_by_tls_only_and_must_be_known() -> None:
    context = AUTHORITY.host_credential("h1").tls()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_3
    assert len(context.get_ca_certs()) == 1
