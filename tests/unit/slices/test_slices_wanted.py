"""Slices as people write them: what is taken, what is refused and how, and what the dataplane is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cwdp.dataplane import abi
from cwdp.errors import ConfigError
from cwdp.shared.config import read_document
from cwdp.shared.rates import format_rate, parse_rate
from cwdp.shared.slices import Job, JobQueuePair, Match, Share, Slice, SliceSet
from cwdp.slices import shares

LINK_BPS = 10**9
EXAMPLE = """
link_rate = "1gbit"

[[slice]]
name = "inference"
guaranteed = "200mbit"
priority = 0
match = [{ dscp = 46 }, { dst = "10.1.0.0/16" }]

[[slice]]
name = "training"
guaranteed = "500mbit"
ceiling = "900mbit"
qp_rate = "100mbit"
match = [{ job = "train-7" }]

[[job]]
name = "train-7"
queue_pairs = [{ dst = "10.0.0.2", qpn = 17 }]
"""


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("1mbit", 10**6),
        ("2.5gbit", 2_500_000_000),
        ("400GBIT", 400 * 10**9),
        (" 10 kbit ", 10_000),
        ("1tbit", 10**12),
        ("7bit", 7),
    ],
)
def test_rates(text: str, rate_bps: int) -> None:
    assert parse_rate(text) == rate_bps


@pytest.mark.parametrize(
    "text", ["", "10", "mbit", "10mb", "-1mbit", "1e3mbit", "1mbit/s", "fast", "200mbps", "9" * 400 + "bit"]
)
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a rate"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("rate_bps", "text"),
    [(0, "0bit"), (1_500_000, "1.5mbit"), (10**11, "100gbit"), (123_456_789, "123.5mbit")],
)
def test_rates_for_people(rate_bps: int, text: str) -> None:
    assert format_rate(rate_bps) == text


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "slices.toml"
    path.write_text(EXAMPLE)
    wanted = read_document(path, SliceSet)
    inference, training = wanted.shares(LINK_BPS)
    assert inference == Share("inference", 200_000_000, LINK_BPS, 0, 0, wanted.slice[0].match)
    assert (training.ceiling_bps, training.qp_bps) == (900_000_000, 100_000_000)
    assert wanted.job == (Job("train-7", (JobQueuePair("10.0.0.2", 17),)),)


def test_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "slices.json"
    path.write_text(json.dumps({"slice": [{"name": "a", "guaranteed": "1mbit", "match": [{"qpn": 1}]}]}))
    assert [share.name for share in read_document(path, SliceSet).shares(LINK_BPS)] == ["a"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[[slice]]\nname = 1", "Expected `str`, got `int`", "keys of [slice]: name, guaranteed"),
        ("[[slice]]\nname = 'a'", "missing required field `guaranteed`", "add it; keys of [slice]"),
        ("[[slice]]\nnames = 'a'", "unknown field `names`", "known keys of [slice]: name, guaranteed"),
        ("slices = []", "unknown field `slices`", "known keys of the top level: slice, job, link_rate"),
        ("slice = ", "is not valid TOML", "correct that line"),
        (None, "cannot read", "name a file that is there"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str | None, message: str, hint: str) -> None:
    path = tmp_path / "slices.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_document(path, SliceSet)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_what_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "slices.json"
    path.write_text("[[slice]]")
    with pytest.raises(ConfigError, match="is not valid JSON"):
        read_document(path, SliceSet)


def a_slice(name: str = "a", guaranteed: str = "10mbit", **settings: Any) -> Slice:
    return Slice(name=name, guaranteed=guaranteed, **({"match": (Match(qpn=1),)} | settings))


def matching(**conditions: Any) -> SliceSet:
    return SliceSet(slice=(a_slice(match=(Match(**conditions),)),))


REFUSED = [
    (SliceSet(slice=(a_slice("-a"),)), "'-a' is no name for a slice"),
    (SliceSet(slice=(a_slice("a" * 33),)), "is no name for a slice"),
    (SliceSet(slice=(a_slice(), a_slice())), "the slice a is there twice"),
    (SliceSet(slice=(a_slice(match=()),)), "slice a has no match"),
    (SliceSet(slice=(a_slice(priority=7),)), "slice a has priority 7"),
    (SliceSet(slice=(a_slice(priority=-1),)), "slice a has priority -1"),
    (SliceSet(slice=(a_slice(guaranteed="ten"),)), "'ten' is not a rate"),
    (SliceSet(slice=(a_slice(guaranteed="999kbit"),)), "slice a: guaranteed is 999kbit"),
    (SliceSet(slice=(a_slice(qp_rate="1bit"),)), "slice a: qp_rate is 1bit"),
    (SliceSet(slice=(a_slice(ceiling="9mbit"),)), "slice a is guaranteed 10mbit, above its ceiling of 9mbit"),
    (matching(), "a match without any condition"),
    (matching(dst="10.0.0.256"), "'10.0.0.256' is no destination"),
    (matching(dst="10.0.0.1/8"), "has host bits set"),
    (matching(dst="fe80::1%eth0"), "'fe80::1%eth0' names an interface"),
    (matching(dst="::/0"), "covers IPv4 addresses too"),
    (matching(qpn=2**24), "there is no qpn 16777216"),
    (matching(qpn=-1), "there is no qpn -1"),
    (matching(dscp=64), "there is no dscp 64"),
    (matching(job="a b"), "'a b' is no name for a job"),
    (SliceSet(job=(Job("j", (JobQueuePair("x", 1),)),)), "job j: 'x' is no IP address"),
    (SliceSet(job=(Job("j", (JobQueuePair("::1", 2**24),)),)), "there is no qpn 16777216"),
    (SliceSet(job=(Job("j", ()), Job("j", ()))), "the job j is there twice"),
    (
        SliceSet(job=(Job("j", (JobQueuePair("::1", 1),)), Job("k", (JobQueuePair("0::1", 1),)))),
        "the queue pair ::1 QPN 1 is there twice",
    ),
    (
        SliceSet(job=(Job("j", (JobQueuePair("10.0.0.2", 1), JobQueuePair("::ffff:10.0.0.2", 1))),)),
        "the queue pair 10.0.0.2 QPN 1 is there twice",
    ),
    (SliceSet(job=(Job("j", (JobQueuePair("fe80::1%eth0", 1),)),)), "'fe80::1%eth0' is no IP address"),
    (SliceSet(slice=tuple(a_slice(f"a{n}", "1mbit") for n in range(201))), "201 slices are too many"),
    (SliceSet(slice=(a_slice(match=(Match(qpn=1),) * 257),)), "257 matches are too many"),
]


@pytest.mark.parametrize(("wanted", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(wanted: SliceSet, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        wanted.shares(LINK_BPS)
    assert message in caught.value.message
    assert caught.value.hint


def test_the_rate_of_the_link() -> None:
    assert SliceSet().given_link_bps() is None
    assert SliceSet(link_rate="2.5gbit").given_link_bps() == 2_500_000_000
    for wrong in ("0mbit", "fast"):
        with pytest.raises(ConfigError):
            SliceSet(link_rate=wrong).given_link_bps()


def test_guarantees_up_to_the_link() -> None:
    exact = SliceSet(slice=(a_slice("a", "600mbit"), a_slice("b", "400mbit")))
    assert len(exact.shares(LINK_BPS)) == 2
    with pytest.raises(ConfigError, match="600mbit \\+ 400mbit = 1gbit, and the link has 999mbit"):
        exact.shares(999_000_000)


def test_a_ceiling_above_the_link_is_the_links() -> None:
    assert SliceSet(slice=(a_slice(ceiling="5gbit"),)).shares(LINK_BPS)[0].ceiling_bps == LINK_BPS


def share(name: str, *, qp_bps: int = 0, matches: tuple[Match, ...] = ()) -> Share:
    return Share(name, 10**6, 10**6, 0, qp_bps, matches)


def test_numbers_stay_with_their_names() -> None:
    wanted = (share("new"), share("b"), share("a"))
    assert {n: s.name for n, s in shares.number(wanted, {1: ("a", False), 2: ("b", False)}).items()} == {
        3: "new",
        2: "b",
        1: "a",
    }


def test_a_number_whose_packets_still_wait_is_not_used_again() -> None:
    present = {1: ("a", False), 2: ("gone", False), 3: ("", False)}
    numbered = shares.number((share("a", qp_bps=10**6), share("b")), present)
    assert list(numbered) == [4, 5]


MATCHES = (
    Match(dst="10.0.0.2"),
    Match(dst="10.0.0.0/8", qpn=0),
    Match(dst="0.0.0.0/0"),
    Match(dst="fd00::2", qpn=0xFFFFFF, dscp=0, job="j"),
    Match(dst="fd00::/9"),
    Match(dscp=63),
    Match(job="a" * 32),
)


def test_rules_say_what_matches_said() -> None:
    numbered = {7: share("a", matches=MATCHES), 3: share("b", matches=(Match(qpn=5),))}
    table = shares.rules(numbered)
    assert shares.matches(table) == {7: MATCHES, 3: (Match(qpn=5),)}
    assert list(table["slice"][:9]) == [7] * 7 + [3, 0]


def test_addresses_as_the_dataplane_has_them() -> None:
    table = shares.rules({1: share("a", matches=(Match(dst="10.1.0.0/16"), Match(dst="fd00::/16")))})
    assert [int(word) for word in table["addr"][0]] == [0, 0, 0xFFFF, 0x0A010000]
    assert [int(word) for word in table["addr_mask"][0]] == [0xFFFFFFFF] * 3 + [0xFFFF0000]
    assert [int(word) for word in table["addr"][1]] == [0xFD000000, 0, 0, 0]
    assert [int(word) for word in table["addr_mask"][1]] == [0xFFFF0000, 0, 0, 0]


def test_describing_a_slice_leaves_what_packets_move() -> None:
    record = np.zeros(1, dtype=abi.SLICE)[0]
    record["departure_ns"], record["bytes"], record["next_leaf"] = 1, 2, 3
    shares.describe(record, share("a", qp_bps=5))
    assert (record["departure_ns"], record["bytes"], record["next_leaf"]) == (1, 2, 3)
    assert shares.shape(record) == ("a", True)
