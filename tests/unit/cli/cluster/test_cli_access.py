"""`cwdp fleet token`, `certificate`, `access`, `revoke-access`, `authority`, and commands that show what these gave."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from pwd import getpwuid

import pytest
from access_fakes import ServedManager, signed_certificate
from bus_fakes import authority
from click.testing import CliRunner, Result

from cwdp.cli import main
from manager.identity import certificates
from manager.identity.authority import Authority

pytestmark = pytest.mark.needs("nats-server")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedManager]:
    with ServedManager(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, **env: object) -> Result:
    given = {key: str(value) for key, value in env.items()}
    return CliRunner().invoke(main, list(arguments), env=given)


def far(served: ServedManager, *arguments: str, **env: object) -> Result:
    """From elsewhere, once the manager leads."""
    assert served.local
    url = f"https://127.0.0.1:{served.port}"
    return run(*arguments, "--manager", url, CWDP_AUTHORITY_FILE=served.authority_file, **env)


@contextmanager
def _tls_server(context: ssl.SSLContext) -> Iterator[int]:
    """Who takes one connection, and shows its certificate."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                context.wrap_socket(listening.accept()[0], server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(listening.getsockname()[1])
        thread.join()


def secret(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_token_is_made_used_listed_and_revoked(served: ServedManager, here: Path) -> None:
    made = run("fleet", "token", "alice", "--role", "operator", "--days", "7", "--manager", served.local)
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("cwdpt-")
    token = secret(here / "token", made.stdout)
    assert far(served, "manager", "status", CWDP_TOKEN_FILE=token).exit_code == 0
    listed = run("fleet", "access", "--manager", served.local)
    row = next(line for line in listed.stdout.splitlines() if line.startswith("alice"))
    assert all(word in row for word in ("operator", "token", getpwuid(os.getuid()).pw_name))
    assert made.stdout.strip() not in run("fleet", "access", "--json", "--manager", served.local).stdout
    lesser = far(served, "fleet", "access", CWDP_TOKEN_FILE=token)
    assert lesser.exit_code == 1
    assert lesser.stderr == (
        "error: the manager refused: that takes the role administrator, and alice (token) has the role operator\n"
        "  ask an administrator for `cwdp fleet token NAME --role administrator`\n"
    )
    gone = run("fleet", "revoke-access", "alice", "--manager", served.local)
    assert gone.stdout == "the token of alice counts no more\n"
    refused = far(served, "manager", "status", CWDP_TOKEN_FILE=token)
    assert refused.exit_code == 1
    assert "does not count here: revoked, or of another fleet" in refused.stderr
    assert run("fleet", "revoke-access", "alice", "--manager", served.local).exit_code == 1


def test_a_certificate_is_made_with_a_key_that_stays_here(served: ServedManager, here: Path) -> None:
    made = run("fleet", "certificate", "bob", "--role", "administrator", "--manager", served.local)
    assert made.exit_code == 0, made.output
    path = here / "bob.pem"
    assert path.stat().st_mode & 0o077 == 0
    listed = far(served, "fleet", "access", "--json", CWDP_CERTIFICATE_FILE=path)
    rows = {row["name"]: row for row in json.loads(listed.stdout)["access"]}
    assert (rows["bob"]["role"], rows["bob"]["kind"]) == ("administrator", "certificate")
    again = run("fleet", "certificate", "bob", "--role", "viewer", "--manager", served.local)
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    second = far(served, "fleet", "token", "carol", "--role", "viewer", CWDP_CERTIFICATE_FILE=path)
    assert second.exit_code == 0, "an administrator from elsewhere lets others in"


def test_the_authority_is_told(served: ServedManager) -> None:
    told = run("fleet", "authority", "--manager", served.local)
    assert told.stdout == authority().root


@pytest.mark.parametrize(
    "arguments",
    [
        ("token", "a b", "--role", "viewer"),
        ("token", "a", "--role", "viewer", "--days", "0"),
        ("token", "a", "--role", "root"),
        ("token", "a"),
        ("certificate", "-x", "--role", "viewer"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_cannot_be_given_is_refused(served: ServedManager, arguments: tuple[str, ...]) -> None:
    refused = run("fleet", *arguments, "--manager", served.local)
    assert refused.exit_code in (1, 2)
    assert "Traceback" not in refused.output
    assert not list(Path().iterdir())


def test_no_credential_is_told_how_to_get_one(served: ServedManager) -> None:
    refused = far(served, "clock")
    assert refused.exit_code == 1
    assert "shows a token or a certificate" in refused.stderr
    assert "CWDP_TOKEN_FILE" in refused.stderr


def test_files_of_credentials_that_cannot_be_used_are_told(served: ServedManager, here: Path) -> None:
    open_to_all = here / "open"
    open_to_all.write_text("cwdpt-x")
    open_to_all.chmod(0o644)
    for name in ("CWDP_TOKEN_FILE", "CWDP_CERTIFICATE_FILE"):
        assert "chmod 600" in far(served, "clock", **{name: open_to_all}).stderr
        assert "No such file" in far(served, "clock", **{name: here / "nowhere"}).stderr
    for text in ("", "two words", "a\nb", "caf\u00e9"):
        told = far(served, "clock", CWDP_TOKEN_FILE=secret(here / "bad", text))
        assert "holds no token" in told.stderr, text
    told = far(served, "clock", CWDP_CERTIFICATE_FILE=secret(here / "bad", "x"))
    assert "is no key with a certificate" in told.stderr


def test_a_certificate_that_does_not_hold_is_told_with_this_hosts_clock(
    served: ServedManager, here: Path
) -> None:
    ended = signed_certificate(here / "ended.pem", authority(), days=-0.02)
    told = far(served, "clock", CWDP_CERTIFICATE_FILE=ended)
    assert "expired 29 minutes ago by this host's clock, which says 20" in told.stderr
    assert "cwdp fleet certificate" in told.stderr
    later = signed_certificate(here / "later.pem", authority(), skew=timedelta(hours=-3))
    told = far(served, "clock", CWDP_CERTIFICATE_FILE=later)
    assert "was made 4 hours ahead of this host's clock, which says 20" in told.stderr
    assert "set the clock" in told.stderr
    foreign = signed_certificate(here / "foreign.pem", Authority.new())
    told = far(served, "clock", CWDP_CERTIFICATE_FILE=foreign)
    assert "broke off" in told.stderr, told.stderr
    assert "of this fleet" in told.stderr


def test_a_manager_that_is_not_known_is_told(served: ServedManager, here: Path) -> None:
    other = here / "other.crt"
    other.write_text(Authority.new().root)
    url = f"https://127.0.0.1:{served.port}"
    told = run("clock", "--manager", url, CWDP_AUTHORITY_FILE=other)
    assert "of an authority not known here" in told.stderr
    assert "cwdp fleet authority" in told.stderr
    told = run("clock", "--manager", url, CWDP_AUTHORITY_FILE=here / "nowhere")
    assert "cannot use the authority" in told.stderr
    wrong = run(
        "clock", "--manager", f"https://127.0.0.2:{served.port}", CWDP_AUTHORITY_FILE=served.authority_file
    )
    assert "is not for that name" in wrong.stderr
    assert "[tls]" in wrong.stderr
    plain = run("clock", "--manager", f"http://127.0.0.1:{served.port}")
    assert "https://" in plain.stderr


@pytest.mark.parametrize(("skew", "days", "words"), [(1, -0.02, "has expired"), (-3, 1, "is not valid yet")])
def test_a_managers_certificate_that_does_not_hold_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, skew: int, days: float, words: str
) -> None:
    monkeypatch.setattr(certificates, "SKEW", timedelta(hours=skew))
    monkeypatch.setattr(certificates, "SERVER_DAYS", days)
    path = secret(here / "server.pem", "".join(authority().listener_certificate(["127.0.0.1"])))
    known = here / "authority.crt"
    known.write_text(authority().root)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with _tls_server(context) as port:
        told = run("clock", "--manager", f"https://127.0.0.1:{port}", CWDP_AUTHORITY_FILE=known)
    assert words in told.stderr
    assert "this host's clock, which says 20" in told.stderr
    assert "set the clock" in told.stderr


def test_a_token_does_not_leave_the_machine_in_the_clear(here: Path) -> None:
    token = secret(here / "token", "cwdpt-x")
    told = run("clock", "--manager", "http://192.0.2.1:9464", CWDP_TOKEN_FILE=token)
    assert told.exit_code == 2
    assert "in the clear" in told.stderr
    assert "https://" in told.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_other_programs_show_the_same_files(served: ServedManager, here: Path) -> None:
    run("fleet", "certificate", "dan", "--role", "metrics", "--manager", served.local)
    url = f"https://127.0.0.1:{served.port}/metrics"
    asked = [
        "curl",
        "-sf",
        "--noproxy",
        "*",
        "--cacert",
        str(served.authority_file),
        "--cert",
        "dan.pem",
        url,
    ]
    done = subprocess.run(asked, cwd=here, capture_output=True, text=True, check=True)
    assert "cwdp_build_info" in done.stdout
