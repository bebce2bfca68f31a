"""The fleet's authority: kept for its owner only, signs for names that can be, and whose servers are known by their root."""

import datetime as dt
import time
from pathlib import Path

import nkeys
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from cwdp.errors import ConfigError, IdentityError
from cwdp.shared.identity import jwt
from cwdp.shared.identity.credential import SERVER_NAME
from manager.identity.authority import FILE, Authority

AUTHORITY = Authority.new()


def test_it_is_saved_and_loaded_and_its_owners_alone(tmp_path: Path) -> None:
    directory = tmp_path / "authority"
    first = Authority.load_or_new(directory)
    assert (directory / FILE).stat().st_mode & 0o777 == 0o600
    for again in (Authority.load(directory), Authority.load_or_new(directory)):
        assert again.root == first.root
        assert jwt.seed(again.control_key) == jwt.seed(first.control_key)
        assert again.system_account == first.system_account
        assert again.host_claims(first.host_credential("h1").token)["name"] == "h1"
    (directory / FILE).chmod(0o640)
    for load in (Authority.load, Authority.load_or_new):
        with pytest.raises(IdentityError, match="can be read by others") as caught:
            load(directory)
        assert caught.value.hint == f"run: chmod 600 {directory / FILE}"


def test_one_that_is_not_there_or_is_none_is_named_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="cannot read the fleet's authority") as caught:
        Authority.load(tmp_path)
    assert "cwdp fleet init" in caught.value.hint
    AUTHORITY.save(tmp_path)
    text = (tmp_path / FILE).read_text()
    seed = jwt.seed(AUTHORITY.control_key)
    for content in ("", "{}", "[]", text[:-40], text.replace(seed, "x"), text.replace(seed, seed[:-5])):
        (tmp_path / FILE).write_text(content)
        with pytest.raises(IdentityError, match="is no authority") as caught:
            Authority.load(tmp_path)
        assert caught.value.hint
        assert seed[2:-5] not in str(caught.value)


NO_NAMES = ["", "*", ">", "a.b", "a b", "h\n", "é", "a" * 129, "{{name()}}", "a/b", "$KV", ".."]


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_that_would_be_more_than_one_hosts_are_not_signed(name: str) -> None:
    public = jwt.public_key(jwt.new_key(nkeys.PREFIX_BYTE_USER))
    for host, pod in ((name, "main"), ("h1", name)):
        with pytest.raises(ConfigError, match="cannot be the name of") as caught:
            AUTHORITY.host_token(public, host, pod)
        assert caught.value.hint
        with pytest.raises(ConfigError):
            AUTHORITY.joiner_credential(host, pod, 1.0)


@pytest.mark.parametrize("name", ["h1", "gpu-17_a", "A" * 128, "0"])
def test_a_hosts_token_says_who_it_is_and_grants_nothing_by_itself(name: str) -> None:
    public = jwt.public_key(jwt.new_key(nkeys.PREFIX_BYTE_USER))
    claims = AUTHORITY.host_claims(AUTHORITY.host_token(public, name, "pod-7", days=2))
    assert (claims["sub"], claims["name"]) == (public, name)
    assert claims["nats"]["tags"] == ["pod:pod-7"]
    assert not {"pub", "sub", "subs", "payload"} & claims["nats"].keys()
    assert claims["exp"] == pytest.approx(time.time() + 2 * 86_400, abs=60)


def test_what_it_has_not_signed_for_a_host_is_no_hosts() -> None:
    others = Authority.new().host_credential("h1")
    for credential in (
        others,
        AUTHORITY.manager_credential("m"),
        AUTHORITY.system_credential(),
        AUTHORITY.joiner_credential("h1", "main", 1.0),
    ):
        with pytest.raises(IdentityError, match="by a stranger"):
            AUTHORITY.host_claims(credential.token)


def test_servers_have_certificates_of_the_root_for_the_one_name_that_is_asked_for() -> None:
    root = x509.load_pem_x509_certificate(AUTHORITY.root.encode())
    _, pem = AUTHORITY.server_certificate()
    certificate = x509.load_pem_x509_certificate(pem.encode())
    certificate.verify_directly_issued_by(root)
    root.verify_directly_issued_by(root)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [SERVER_NAME]
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(uses) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    signs = root.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (signs.ca, signs.path_length) == (True, 0)
    now = dt.datetime.now(dt.UTC)
    for each in (root, certificate):
        assert each.not_valid_before_utc < now - dt.timedelta(minutes=30)
        assert each.not_valid_after_utc > now + dt.timedelta(days=365)
    other = x509.load_pem_x509_certificate(Authority.new().server_certificate()[1].encode())
    with pytest.raises(ValueError, match="does not match"):
        other.verify_directly_issued_by(root)
