"""What a manager may listen on, and by what it is known there."""

import ssl
from pathlib import Path

import pytest
from bus_fakes import authority
from cryptography import x509

from cwdp.errors import ConfigError
from manager.access.listeners import FILE, Listener, listeners
from manager.access.roles import Role
from manager.config import ManagerConfig, RoleSettings, TlsSettings


def _config(path: Path, **settings: object) -> ManagerConfig:
    return ManagerConfig(state_dir=str(path), **settings)  # type: ignore[arg-type]


def _names(path: Path) -> set[str]:
    text = (path / FILE).read_text()
    certificate = x509.load_pem_x509_certificate(text[text.index("-----BEGIN CERT") :].encode())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(each.value) for each in found}


@pytest.mark.parametrize("address", ["127.0.0.1:9464", "[::1]:9464", "localhost:9464", "127.8.9.1:9464"])
@pytest.mark.parametrize(("loopback", "others"), [("none", Role.NONE), ("viewer", Role.VIEWER)])
def test_loopback_is_plain_and_open_to_whom_the_settings_say(
    tmp_path: Path, address: str, loopback: str, others: Role
) -> None:
    roles = RoleSettings(loopback=loopback)  # type: ignore[arg-type]
    found = listeners(_config(tmp_path, listen=address, page=address, roles=roles), authority())
    assert [(each.tls, each.others) for each in found if each is not None] == [(None, others)] * 2
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    ("listen", "page", "names", "known_by"),
    [
        ("10.0.0.1:9464", "", (), {"10.0.0.1"}),
        (None, "manager.example:9465", (), {"manager.example"}),
        ("[fd00::1]:9464", "127.0.0.1:9465", ("m1",), {"fd00::1", "m1"}),
        ("0.0.0.0:9464", "[::]:9465", ("m1", "10.0.0.1"), {"m1", "10.0.0.1"}),
    ],
)
def test_beyond_loopback_there_is_tls_by_a_certificate_of_the_authority(
    tmp_path: Path, listen: str | None, page: str, names: tuple[str, ...], known_by: set[str]
) -> None:
    roles = RoleSettings(loopback="viewer")
    config = _config(tmp_path, listen=listen, page=page, tls=TlsSettings(names=names), roles=roles)
    for found in listeners(config, authority()):
        if found is not None and found.host != "127.0.0.1":
            assert found.tls is not None
            assert found.tls.minimum_version is ssl.TLSVersion.TLSv1_3
            assert found.others is Role.NONE
            assert found.url.startswith("https://")
    assert _names(tmp_path) == known_by
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("address", ["0.0.0.0:9464", "[::]:9464"])
@pytest.mark.parametrize("option", ["listen", "page"])
def test_every_address_takes_a_name_for_the_certificate(tmp_path: Path, option: str, address: str) -> None:
    config = _config(tmp_path, **{"page": "", option: address})
    with pytest.raises(ConfigError, match=f"^{option}: ") as caught:
        listeners(config, authority())
    assert "[tls]" in caught.value.hint


@pytest.mark.parametrize(
    "settings",
    [
        TlsSettings(certificate="own.pem"),
        TlsSettings(key="own.pem"),
        TlsSettings(certificate="nowhere.pem", key="nowhere.key"),
        TlsSettings(certificate=__file__, key=__file__),
    ],
)
def test_a_certificate_of_ones_own_that_cannot_be_used_is_told(tmp_path: Path, settings: TlsSettings) -> None:
    with pytest.raises(ConfigError, match=r"\[tls\]") as caught:
        listeners(_config(tmp_path, listen="10.0.0.1:9464", tls=settings), authority())
    assert caught.value.hint


def test_a_certificate_of_ones_own_takes_the_place_of_the_authoritys(tmp_path: Path) -> None:
    path = tmp_path / "own.pem"
    path.write_text("".join(authority().listener_certificate(["m1"])))
    settings = TlsSettings(certificate=str(path), key=str(path))
    found, _ = listeners(_config(tmp_path, listen="0.0.0.0:9464", tls=settings), authority())
    assert found is not None
    assert found.tls is not None
    assert not (tmp_path / FILE).exists()


def test_cookies_of_two_managers_on_one_host_are_two() -> None:
    assert Listener("127.0.0.1", 1).cookie != Listener("127.0.0.1", 2).cookie
