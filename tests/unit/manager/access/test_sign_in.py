"""A browser's session at the page's listener: how it begins, what it may, when it ends."""

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from access_fakes import Answer, ServedManager

from cwdp.cli.client import ManagerClient
from manager.access.grants import new_token

pytestmark = pytest.mark.needs("nats-server")

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module", params=["0.0.0.0", "127.0.0.1"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedManager]:
    with ServedManager(tmp_path_factory.mktemp("served"), address=request.param) as running:
        yield running


def _signed_in(served: ServedManager, token: Any, **headers: str) -> Answer:
    return served.ask("POST", "/v1/session", body={"token": token}, headers={**JSON, **headers}, page=True)


def _cookie(answer: Answer) -> dict[str, str]:
    return {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}


def test_files_are_everybodys_and_what_the_fabric_is_like_is_not(served: ServedManager) -> None:
    for path in ("/", "/js/app.js", "/app.css"):
        assert served.ask("GET", path, page=True).status == 200
    for path in ("/v1/fleet", "/v1/stream", "/v1/session", "/v1/events", "/v1/nothing"):
        answer = served.ask("GET", path, page=True)
        assert answer.status == 401, path
        assert "WWW-Authenticate" in answer.headers
        assert served.ask("HEAD", path, page=True).status == 401


def test_a_token_opens_a_session_that_tells_nothing_of_it(served: ServedManager) -> None:
    token = served.token("one", "viewer")
    answer = _signed_in(served, token)
    assert answer.status == 200
    assert answer.told == {"name": "one (token)", "role": "viewer"}
    cookie = answer.headers["Set-Cookie"]
    assert token not in cookie
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert ("secure" in attributes) is served.is_tls
    assert cookie.startswith("__Host-") is served.is_tls
    assert not [part for part in attributes if part.startswith("domain")]
    session = _cookie(answer)
    assert served.ask("GET", "/v1/fleet", headers=session, page=True).status == 200
    assert served.ask("GET", "/v1/session", headers=session, page=True).told["role"] == "viewer"
    assert served.ask("PUT", "/v1/steer", headers=session, page=True).status == 405
    assert served.ask("GET", "/v1/fleet", headers=session).status == 401, "the API takes no sessions"


def test_signing_out_ends_it(served: ServedManager) -> None:
    session = _cookie(_signed_in(served, served.token("two", "viewer")))
    assert served.ask("DELETE", "/v1/session", headers=session, page=True).status == 200
    assert served.ask("GET", "/v1/fleet", headers=session, page=True).status == 401


def test_a_session_and_its_stream_end_with_the_token(served: ServedManager) -> None:
    session = _cookie(_signed_in(served, served.token("three", "viewer")))
    stream = (
        http.client.HTTPSConnection("127.0.0.1", served.page_port, timeout=10, context=served.context())
        if served.is_tls
        else http.client.HTTPConnection("127.0.0.1", served.page_port, timeout=10)
    )
    stream.request("GET", "/v1/stream", headers=session)
    answer = stream.getresponse()
    assert answer.status == 200
    assert answer.readline() == b"event: tick\n"
    ManagerClient(served.local).delete("/v1/access", {"name": "three"})
    assert served.ask("GET", "/v1/fleet", headers=session, page=True).status == 401
    assert [answer.readline() for _ in range(12)][-1] == b"", "it ends by itself"
    stream.close()


@pytest.mark.parametrize(
    "token", ["", "x", pytest.param(new_token(), id="unknown"), None, 7, ["x"], "caf\u00e9", "x" * 100_000]
)
def test_what_is_no_token_opens_none(served: ServedManager, token: Any) -> None:
    served.move()
    answer = _signed_in(served, token)
    assert answer.status in (400, 401)
    assert "Set-Cookie" not in answer.headers
    assert answer.told["hint"]


def test_a_token_for_metrics_opens_none(served: ServedManager) -> None:
    answer = _signed_in(served, served.token("four", "metrics"))
    assert answer.status == 403
    assert "viewer" in answer.told["error"]
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ],
)
def test_no_other_site_signs_a_browser_in(served: ServedManager, headers: dict[str, str]) -> None:
    served.move()
    token = served.token(f"s{abs(hash(str(headers)))}", "viewer")
    answer = served.ask("POST", "/v1/session", body={"token": token}, headers={**JSON, **headers}, page=True)
    assert answer.status == 400
    assert "Set-Cookie" not in answer.headers


def test_a_cookie_that_nobody_was_given_is_nothing(served: ServedManager) -> None:
    for name in (f"cwdp-{served.page_port}", f"__Host-cwdp-{served.page_port}"):
        answer = served.ask("GET", "/v1/fleet", headers={"Cookie": f"{name}=AAAA"}, page=True)
        assert answer.status == 401


def test_a_header_and_a_certificate_count_at_the_page_too(served: ServedManager, tmp_path: Path) -> None:
    token = served.token("five", "viewer")
    assert served.ask("GET", "/v1/fleet", token=token, page=True).status == 200
    if served.is_tls:
        own = served.certificate(tmp_path / "six.pem", "six", "viewer")
        assert (
            served.ask("GET", "/v1/session", certificate=own, page=True).told["name"] == "six (certificate)"
        )


def test_loopback_may_be_opened_to_viewers_and_to_nobody_more(tmp_path: Path) -> None:
    with ServedManager(tmp_path, address="127.0.0.1", loopback="viewer") as opened:
        for page in (True, False):
            assert opened.ask("GET", "/v1/fleet", page=page).status == 200
            assert opened.ask("GET", "/v1/fleet", page=page, token=new_token()).status == 401
            foreign = opened.ask("GET", "/v1/fleet", page=page, headers={"Host": "evil.example"})
            assert foreign.status == 403
        assert opened.ask("GET", "/metrics").status == 200
        refused = opened.ask("PUT", "/v1/steer", body={})
        assert refused.status == 403
        assert "operator" in refused.told["error"]
        assert opened.ask("GET", "/v1/access").status == 403
        operator = opened.token("op", "operator")
        assert opened.ask("PUT", "/v1/slice", body={}, token=operator).status == 400
