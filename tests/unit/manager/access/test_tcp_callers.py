"""Who comes to a manager by TCP: what each role may, and what wrong credentials get."""

import base64
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import nkeys
import pytest
from access_fakes import ROLES, WAIT_S, ServedManager, signed_certificate
from bus_fakes import authority

from cwdp.cli.client import ManagerClient
from cwdp.shared.identity import jwt
from manager.access.grants import new_token
from manager.identity.authority import Authority

pytestmark = pytest.mark.needs("nats-server")

STEERED = {"host": "h0", "nic": "eth0", "dst": "10.0.0.9", "qpn": 7, "sport": 50_000}
NEW = {"name": "carol", "role": "viewer"}
ASKED: tuple[tuple[str, str, Any, str], ...] = (
    ("GET", "/metrics", None, "metrics"),
    ("GET", "/healthz", None, "viewer"),
    ("GET", "/v1/manager", None, "viewer"),
    ("GET", "/v1/events", None, "viewer"),
    ("GET", "/v1/steer", None, "viewer"),
    ("GET", "/v1/authority", None, "viewer"),
    ("GET", "/v1/no-such-thing", None, "viewer"),
    ("PUT", "/v1/steer", STEERED, "operator"),
    ("DELETE", "/v1/steer?host=h0&nic=eth0&dst=10.0.0.9&qpn=7", None, "operator"),
    ("GET", "/v1/steer/tcp", None, "viewer"),
    ("PUT", "/v1/steer/tcp", {}, "operator"),
    ("DELETE", "/v1/steer/tcp?connection=x", None, "operator"),
    ("PUT", "/v1/slice", {}, "operator"),
    ("DELETE", "/v1/slice?host=h0&nic=eth0", None, "operator"),
    ("GET", "/v1/credential", None, "administrator"),
    ("PUT", "/v1/credential", {}, "administrator"),
    ("DELETE", "/v1/credential?host=nobody", None, "administrator"),
    ("PUT", "/v1/credential/keys", None, "administrator"),
    ("GET", "/v1/access", None, "administrator"),
    ("PUT", "/v1/access", NEW, "administrator"),
    ("PUT", "/v1/audit", {"level": "none"}, "operator"),
    ("DELETE", "/v1/access?name=carol", None, "administrator"),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedManager]:
    with ServedManager(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def shown(served: ServedManager, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """A token and a certificate of each role."""
    path = tmp_path_factory.mktemp("shown")
    tokens = {("token", role): served.token(f"t-{role}", role) for role in ROLES}
    files = {
        ("certificate", role): served.certificate(path / f"{role}.pem", f"c-{role}", role) for role in ROLES
    }
    return {**tokens, **files}


@pytest.mark.parametrize("kind", ["token", "certificate"])
@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_what_is_its_own_and_what_lesser_ones_may(
    served: ServedManager, shown: dict[tuple[str, str], Any], kind: str, role: str
) -> None:
    with_it = {kind: shown[kind, role]}
    for method, path, body, needed in ASKED:
        answer = served.ask(method, path, body=body, **with_it)
        if ROLES.index(role) >= ROLES.index(needed):
            assert answer.status in (200, 400, 404), (method, path, answer)
        else:
            assert answer.status == 403, (method, path, answer)
            first = "viewer" if role == "metrics" else needed
            assert answer.told["error"] == (
                f"that takes the role {first}, and {kind[0]}-{role} ({kind}) has the role {role}"
            )
            assert f"--role {first}" in answer.told["hint"]


def test_who_shows_nothing_gets_nothing(served: ServedManager) -> None:
    for method, path, body, _ in ASKED:
        answer = served.ask(method, path, body=body)
        assert answer.status == 401, (method, path)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert "cwdp fleet token" in answer.told["hint"]


def test_a_change_bears_the_name_of_who_made_it(
    served: ServedManager, shown: dict[tuple[str, str], Any]
) -> None:
    assert served.ask("PUT", "/v1/steer", body=STEERED, token=shown["token", "operator"]).status == 200
    certificate = shown["certificate", "operator"]
    path = "/v1/steer?host=h0&nic=eth0&dst=10.0.0.9&qpn=7"
    assert served.ask("DELETE", path, certificate=certificate).status == 200
    token = served.ask(
        "PUT", "/v1/access", body={**NEW, "name": "dora"}, token=shown["token", "administrator"]
    )
    assert served.ask("GET", "/v1/manager", token=token.told["token"]).status == 200
    assert (
        served.ask("DELETE", "/v1/access?name=dora", certificate=shown["certificate", "administrator"]).status
        == 200
    )
    wanted = {
        ("steer_set", "by t-operator (token)"),
        ("steer_withdrawn", "by c-operator (certificate)"),
        ("access_granted", "by t-administrator (token)"),
        ("access_revoked", "by c-administrator (certificate)"),
    }
    deadline, told, events = time.monotonic() + WAIT_S, set(), []
    while not wanted <= told:
        assert time.monotonic() < deadline, told
        answer = served.ask("GET", "/v1/events?kind=change&limit=100", token=shown["token", "viewer"])
        events = answer.told["events"]
        told = {(each["kind"], each["detail"].partition(":")[0]) for each in events}
    assert token.told["token"] not in json.dumps(events)


CHANGED = [asked for asked in ASKED if asked[0] in ("PUT", "DELETE")]


@pytest.mark.parametrize("why", ["x" * 201, "two%0Alines", "%1B[31m"], ids=["long", "lines", "escape"])
def test_why_that_cannot_be_kept_is_refused_by_every_route_that_changes_something(
    served: ServedManager, shown: dict[tuple[str, str], Any], why: str
) -> None:
    before = len(served.manager.state.events)
    for method, path, body, _ in CHANGED:
        asked = f"{path}{'&' if '?' in path else '?'}why={why}"
        answer = served.ask(method, asked, body=body, token=shown["token", "administrator"])
        assert (answer.status, answer.told["error"][:4]) == (400, "why "), (method, path)
    assert len(served.manager.state.events) == before


def test_why_is_kept_with_whatever_is_changed(
    served: ServedManager, shown: dict[tuple[str, str], Any]
) -> None:
    slices = {
        "host": "h0",
        "nic": "eth0",
        "wanted": {"slice": [{"name": "a", "guaranteed": "1mbit", "match": [{"qpn": 7}]}]},
    }
    asked: list[tuple[str, str, Any, str]] = [
        ("PUT", "/v1/steer", STEERED, "steer_set"),
        ("DELETE", "/v1/steer?host=h0&nic=eth0&dst=10.0.0.9&qpn=7", None, "steer_withdrawn"),
        ("PUT", "/v1/slice", slices, "slice_set"),
        ("DELETE", "/v1/slice?host=h0&nic=eth0", None, "slice_withdrawn"),
        ("PUT", "/v1/access", {**NEW, "name": "erin"}, "access_granted"),
        ("DELETE", "/v1/access?name=erin", None, "access_revoked"),
        ("PUT", "/v1/credential", {"host": "h7"}, "host_invited"),
        ("DELETE", "/v1/credential?host=h7", None, "host_revoked"),
        ("PUT", "/v1/credential/keys", None, "keys_rotating"),
        ("PUT", "/v1/audit", {}, "audit_started"),
    ]
    token = shown["token", "administrator"]
    for method, path, body, kind in asked:
        with_why = f"{path}{'&' if '?' in path else '?'}why=for+{kind}"
        answer = served.ask(method, with_why, body=body, token=token)
        assert answer.status == 200, (path, answer)
    wanted = {(kind, f"for {kind}") for _, _, _, kind in asked}
    deadline, told = time.monotonic() + WAIT_S, set()
    while not wanted <= told:
        assert time.monotonic() < deadline, wanted - told
        events = served.ask("GET", "/v1/events?kind=change&limit=1000", token=token).told["events"]
        told = {(each["kind"], each["why"]) for each in events}
        assert all(
            each["detail"].startswith("by t-administrator (token): ") for each in events if each["why"]
        )


def _of_another_fleet() -> str:
    other = Authority.new()
    return other.host_token(jwt.public_key(jwt.new_key(nkeys.PREFIX_BYTE_USER)), "h0", "main")


def _unsigned(algorithm: str) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"sub": "root", "role": "administrator", "exp": 9_999_999_999}
    return f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(claims)}.{'' if algorithm == 'none' else 'AAAA'}"


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "A" * 7_000,
        "caf\u00e9",
        "\u00ff\u0000".replace("\u0000", "\u0001"),
        pytest.param(new_token(), id="unknown"),
        _of_another_fleet(),
        authority().manager_credential("manager").token,
        _unsigned("none"),
        _unsigned("HS256"),
        "null",
        "[]",
    ],
    ids=lambda token: ascii(token[:12]),
)
def test_what_is_no_token_of_this_fleet_is_refused_and_counted(served: ServedManager, token: str) -> None:
    before = served.refused()
    answer = served.ask("GET", "/v1/manager", token=token)
    assert answer.status in (400, 401, 429)
    assert token.encode(errors="replace") not in answer.body
    if answer.status != 400:
        assert sum(served.refused().values()) == sum(before.values()) + 1


@pytest.fixture
def patient(served: ServedManager) -> ServedManager:
    """For who comes from an address that nobody has tried from."""
    served.move()
    return served


@pytest.mark.parametrize(
    ("issued_s", "expires_s", "reason", "words"),
    [
        (-86_400 * 5, -86_400 * 3, "expired", "expired 3 days ago"),
        (-10, -1, "expired", "expired"),
        (7_200 + 5, 86_400, "not_yet_valid", "2 hours ahead of this manager's clock"),
    ],
)
def test_a_token_holds_from_when_it_was_made_until_its_end(
    patient: ServedManager, issued_s: float, expires_s: float, reason: str, words: str
) -> None:
    token, now_s, before = new_token(), time.time(), patient.refused()
    patient.grant(token, issued_s=now_s + issued_s, expires_s=now_s + expires_s)
    answer = patient.ask("GET", "/v1/manager", token=token)
    assert answer.status == 401
    assert words in answer.told["error"]
    assert answer.told["hint"]
    assert patient.refused()[reason] == before[reason] + 1


@pytest.mark.parametrize("kind", ["token", "certificate"])
def test_what_is_revoked_counts_no_more_at_once(patient: ServedManager, tmp_path: Path, kind: str) -> None:
    shown: Any = (
        patient.token("mallory", "administrator")
        if kind == "token"
        else patient.certificate(tmp_path / "m.pem", "mallory", "administrator")
    )
    with_it, before = {kind: shown}, patient.refused()
    assert patient.ask("GET", "/v1/access", **with_it).status == 200
    ManagerClient(patient.local).delete("/v1/access", {"name": "mallory"})
    answer = patient.ask("GET", "/v1/access", **with_it)
    assert answer.status == 401
    assert "revoked" in answer.told["error"]
    assert patient.refused()["unknown"] == before["unknown"] + 1


def test_a_wrong_token_is_not_made_good_by_a_right_certificate(
    patient: ServedManager, shown: dict[tuple[str, str], Any]
) -> None:
    certificate = shown["certificate", "administrator"]
    assert patient.ask("GET", "/v1/manager", token=new_token(), certificate=certificate).status == 401
    lesser = patient.ask("GET", "/v1/access", token=shown["token", "viewer"], certificate=certificate)
    assert lesser.status == 403


@pytest.mark.parametrize("days", [-0.01, 1.0])
def test_a_certificate_that_the_authority_signed_and_no_manager_keeps_is_nobodys(
    patient: ServedManager, tmp_path: Path, days: float
) -> None:
    own = signed_certificate(tmp_path / "own.pem", authority(), days=days)
    if days > 0:
        assert patient.ask("GET", "/v1/manager", certificate=own).status == 401
    else:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            patient.ask("GET", "/v1/manager", certificate=own)


def test_a_bus_servers_certificate_is_nobodys(patient: ServedManager, tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    path.write_text("".join(authority().server_certificate()))
    assert patient.ask("GET", "/metrics", certificate=path).status == 401


def test_a_certificate_of_another_authority_or_of_tomorrow_ends_the_handshake(
    served: ServedManager, tmp_path: Path
) -> None:
    foreign = signed_certificate(tmp_path / "foreign.pem", Authority.new())
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.ask("GET", "/v1/manager", certificate=foreign)
    later = signed_certificate(tmp_path / "later.pem", authority(), skew=timedelta(hours=-2))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.ask("GET", "/v1/manager", certificate=later)


def test_no_other_place_of_a_request_holds_a_credential(
    patient: ServedManager, shown: dict[tuple[str, str], Any]
) -> None:
    token = shown["token", "administrator"]
    assert patient.ask("GET", f"/v1/manager?token={token}&access_token={token}").status == 401
    for name in (
        *("Cookie", "Proxy-Authorization", "X-Authorization", "X-Remote-User", "Remote-User"),
        *(
            "X-Forwarded-User",
            "X-Client-Cert",
            "X-SSL-Client-Verify",
            "Authorization_",
            "X-HTTP-Method-Override",
        ),
    ):
        for value in (f"Bearer {token}", token, f"cwdp-{patient.port}={token}", "root", "SUCCESS"):
            assert patient.ask("GET", "/v1/manager", headers={name: value}).status == 401, name
    for scheme in ("Basic", "Token", "Digest", ""):
        answer = patient.ask("GET", "/v1/manager", headers={"Authorization": f"{scheme} {token}".strip()})
        assert answer.status in (401, 429)
    assert patient.ask("GET", "/v1/manager", headers={"Authorization": f"bearer  {token} "}).status == 200


@pytest.mark.parametrize(
    "head",
    [
        b"Authorization: Bearer %(good)s\r\nAuthorization: Bearer %(bad)s\r\n",
        b"Authorization: Bearer %(bad)s\r\nAuthorization: Bearer %(good)s\r\n",
        b"Authorization: Bearer %(bad)s\r\nauthorization: Bearer %(good)s\r\n",
        b"Authorization : Bearer %(good)s\r\n",
        b"X-A: b\r\n Authorization: Bearer %(good)s\r\n",
        b"X-A: b\nAuthorization: Bearer %(bad)s\r\n",
        b"Authorization: Bearer\r\n\t%(bad)s\r\n",
        b"Authorization: Bearer %(bad)s\x00%(good)s\r\n",
    ],
)
def test_a_request_with_headers_that_could_be_read_in_two_ways_is_refused(
    patient: ServedManager,
    shown: dict[tuple[str, str], Any],
    head: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    tokens = {b"good": shown["token", "administrator"].encode(), b"bad": new_token().encode()}
    lines = b"GET /v1/manager HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" + head % tokens
    said = patient.say(lines + b"\r\n")
    assert said.split(b" ", 2)[1] in (b"400", b"401", b"429"), said
    assert b'"leads"' not in said
    assert not [token for token in tokens.values() if token.decode() in caplog.text]


def test_no_second_request_hides_in_the_body_of_a_first(
    patient: ServedManager, shown: dict[tuple[str, str], Any]
) -> None:
    """What a proxy may take for one request and we for two, or the other way round."""
    token = shown["token", "operator"].encode()
    hidden = (
        b"DELETE /v1/credential?host=h0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
        + token
        + b"\r\n\r\n"
    )
    for lengths in (
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 0\r\nContent-Length: 9\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Content-Length: +5\r\n",
    ):
        head = (
            b"PUT /v1/steer HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer "
            + token
        )
        said = patient.say(head + b"\r\n" + lengths + b"\r\n0\r\n\r\n" + hidden)
        assert said.count(b"HTTP/1.") == 1, (lengths, said)
        assert said.split(b" ", 2)[1] == b"400", (lengths, said)


def test_who_tries_is_told_to_wait_and_locks_nobody_out(
    patient: ServedManager, shown: dict[tuple[str, str], Any]
) -> None:
    before = patient.refused()["too_many"]
    statuses = [patient.ask("GET", "/v1/manager", token=new_token()).status for _ in range(25)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    refused = patient.refused()["too_many"]
    assert refused - before == statuses.count(429) > 0
    assert patient.ask("GET", "/v1/manager", token=shown["token", "viewer"]).status == 200
    metrics = patient.ask("GET", "/metrics", token=shown["token", "metrics"]).body.decode()
    line = f'cwdp_manager_callers_refused_total{{reason="too_many"}} {float(refused)}'
    assert line in metrics


def test_nothing_is_spoken_but_tls(served: ServedManager) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    connection.request("GET", "/v1/manager")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()
    connection.close()
    old = served.context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    secure = http.client.HTTPSConnection("127.0.0.1", served.port, timeout=10, context=old)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        secure.request("GET", "/v1/manager")
    secure.close()
