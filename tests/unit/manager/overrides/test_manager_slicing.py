"""What operators want of slices: what is refused, what the file keeps, and what hosts are told."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import hello

from cwdp.errors import ConfigError, ManagerError
from cwdp.shared.slices import Match, Slice, SliceSet
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.overrides.slices import SliceTable, SliceWish, read_wish
from manager.state import FleetState

BULK = {"name": "bulk", "guaranteed": "10gbit", "match": [{"dscp": 8}]}


def _wish(*slices: dict[str, Any], host: str = "a", nic: str = "eth0", **more: Any) -> SliceWish:
    wanted = {"slice": slices or [BULK]} | more
    return read_wish(json.dumps({"host": host, "nic": nic, "wanted": wanted}).encode())


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'{"host": "a"}'])
def test_what_is_no_wish_is_refused(body: bytes) -> None:
    with pytest.raises(ConfigError):
        read_wish(body)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nonsense": 1}, "unknown field `nonsense`"),
        ({"guaranteed": "10"}, "'10' is not a rate"),
        ({"priority": 7}, "has priority 7"),
        ({"match": []}, "has no match"),
        ({"match": [{"qpn": 1 << 24}]}, "there is no qpn 16777216"),
    ],
)
def test_a_slice_that_no_link_can_have_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _wish(BULK | changes)


def test_guarantees_are_compared_with_a_link_that_is_told() -> None:
    assert _wish(BULK).wanted.link_rate is None
    with pytest.raises(ConfigError, match="the guarantees exceed the link"):
        _wish(BULK, link_rate="1gbit")


def test_no_slices_are_asked_for_by_deleting() -> None:
    with pytest.raises(ConfigError, match="no slice in it"):
        read_wish(b'{"host": "a", "nic": "eth0", "wanted": {}}')


def test_the_file_keeps_what_was_wanted(tmp_path: Path) -> None:
    path = tmp_path / "slice.json"
    table = SliceTable(path)
    table.set(_wish())
    table.set(_wish(host="b"))
    table.set(_wish(BULK | {"priority": 0}))
    assert not table.unset(("a", "eth1"))
    assert SliceTable(path).all() == [_wish(BULK | {"priority": 0}), _wish(host="b")]
    assert table.unset(("a", "eth0"))
    assert SliceTable(path).messages() == {"b": [_wish(host="b").message()]}


def test_what_cannot_be_kept_is_not_in_force(tmp_path: Path) -> None:
    table = SliceTable(tmp_path / "missing" / "slice.json")
    with pytest.raises(ManagerError, match="cannot write"):
        table.set(_wish())
    assert len(table) == 0


def test_what_does_not_fit_into_a_document_is_refused() -> None:
    table = SliceTable(None)
    job = {"name": "j", "queue_pairs": [{"dst": "10.1.0.2", "qpn": qpn} for qpn in range(15_000)]}
    table.set(_wish(job=[job]))
    table.set(_wish(job=[job], host="b"))
    with pytest.raises(ConfigError, match="the slices of a would be"):
        table.set(_wish(job=[job], nic="eth1"))
    table.set(_wish(job=[job]))
    assert [wish.key for wish in table.all()] == [("a", "eth0"), ("b", "eth0")]


def test_each_host_is_told_of_its_own_whether_it_probes_or_not() -> None:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    state.hear_hello(hello("a"), 0.0)
    state.hear_hello(hello("b"), 0.0)
    state.slicing.set(_wish())
    assert state.documents() == []
    members = state.probeable(0.0)
    state.schedule(members[:1], state.build_graph(members[:1]))
    state.slicing.set(_wish(host="b"))
    told = {document.host: document.slices for document in state.documents()}
    bulk = SliceSet(slice=(Slice(name="bulk", guaranteed="10gbit", match=(Match(dscp=8),)),))
    assert [(one.nic, one.wanted) for one in told["b"]] == [("eth0", bulk)]
    assert list(told) == ["b"]
