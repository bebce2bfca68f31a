"""Signed claims: whole, changed, by a stranger, and no claims at all."""

import base64
import json

import nkeys
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwdp.errors import IdentityError
from cwdp.shared.identity import jwt

KEY, STRANGER = (jwt.new_key(nkeys.PREFIX_BYTE_ACCOUNT) for _ in range(2))
OURS = {jwt.public_key(KEY)}
TEXTS = st.text(max_size=20)
CLAIMS = st.dictionaries(
    TEXTS.map("x{}".format), st.none() | st.integers() | TEXTS | st.lists(TEXTS), max_size=5
)


@given(claims=CLAIMS)
def test_what_was_signed_is_read_with_who_signed_it(claims: dict[str, object]) -> None:
    token = jwt.sign(claims, KEY)
    said = jwt.verified(token, OURS)
    assert said == jwt.read(token)
    assert claims.items() <= said.items()
    assert said["iss"] == jwt.public_key(KEY)
    assert said["iat"] > 0
    with pytest.raises(IdentityError, match="by a stranger") as caught:
        jwt.verified(token, {jwt.public_key(STRANGER)})
    assert caught.value.hint


@given(data=st.data(), claims=CLAIMS)
def test_what_was_changed_since_is_refused(data: st.DataObject, claims: dict[str, object]) -> None:
    token = jwt.sign(claims, KEY)
    place = data.draw(st.integers(0, len(token) - 2))
    letter = data.draw(st.sampled_from("Ab0-_.=é"))
    changed = token[:place] + letter + token[place + 1 :]
    if changed != token:
        with pytest.raises(IdentityError):
            jwt.verified(changed, OURS)


def test_a_stranger_cannot_sign_in_our_name() -> None:
    token = jwt.sign({"name": "h1", "iss": jwt.public_key(KEY)}, STRANGER)
    with pytest.raises(IdentityError, match="signature is wrong"):
        jwt.verified(token, OURS)


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "...",
        "a.b",
        "a.b.c.d",
        "\ud800.b.c",
        f"{_part(jwt.HEADER)}.{_part([1])}.x",
        f"{_part(jwt.HEADER)}.{_part('claims')}.x",
        f"{_part({'typ': 'JWT', 'alg': 'none'})}.{_part({'iss': jwt.public_key(KEY)})}.",
        f"{_part(jwt.HEADER)}.{_part({'iss': jwt.public_key(KEY)})}.",
        f"{_part(jwt.HEADER)}.{_part({'iss': jwt.public_key(KEY)})}.a",
        f"{_part(jwt.HEADER)}.{_part({'iss': [jwt.public_key(KEY)]})}.a",
        f"{_part(jwt.HEADER)}.{_part({})}.a",
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(IdentityError) as caught:
        jwt.verified(token, OURS)
    assert caught.value.hint


@pytest.mark.parametrize(
    "public",
    ["", "A", "é", "1" * 56, "A" * 55, pytest.param(jwt.public_key(KEY) + "A" * 8, id="too long")],
)
def test_nothing_is_signed_by_what_is_no_key(public: str) -> None:
    assert not jwt.is_signed(b"data", KEY.sign(b"data"), public)
    assert jwt.is_signed(b"data", KEY.sign(b"data"), jwt.public_key(KEY))
