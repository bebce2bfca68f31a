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
from manager.overrides.slices import SliceOverride, SliceTable, read_slice_override
from manager.state import FleetState

BULK = {"name": "bulk", "guaranteed": "10gbit", "match": [{"dscp": 8}]}


def _override(*slices: dict[str, Any], host: str = "a", nic: str = "eth0", **more: Any) -> SliceOverride:
    wanted = {"slice": slices or [BULK]} | more
    return read_slice_override(json.dumps({"host": host, "nic": nic, "wanted": wanted}).encode())


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'{"host": "a"}'])
def test_what_is_no_override_is_refused(body: bytes) -> None:
    with pytest.raises(ConfigError):
        read_slice_override(body)


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
        _override(BULK | changes)


def test_guarantees_are_compared_with_a_link_that_is_told() -> None:
    assert _override(BULK).wanted.link_rate is None
    with pytest.raises(ConfigError, match="the guarantees exceed the link"):
        _override(BULK, link_rate="1gbit")


def test_no_slices_are_asked_for_by_deleting() -> None:
    with pytest.raises(ConfigError, match="no slice in it"):
        read_slice_override(b'{"host": "a", "nic": "eth0", "wanted": {}}')


def test_the_file_keeps_what_was_wanted(tmp_path: Path) -> None:
    path = tmp_path / "slice.json"
    table = SliceTable(path)
    table.set(_override())
    table.set(_override(host="b"))
    table.set(_override(BULK | {"priority": 0}))
    assert not table.unset(("a", "eth1"))
    assert SliceTable(path).all() == [_override(BULK | {"priority": 0}), _override(host="b")]
    assert table.unset(("a", "eth0"))
    assert SliceTable(path).messages() == {"b": [_override(host="b").message()]}


def test_what_cannot_be_kept_is_not_in_force(tmp_path: Path) -> None:
    table = SliceTable(tmp_path / "missing" / "slice.json")
    with pytest.raises(ManagerError, match="cannot write"):
        table.set(_override())
    assert len(table) == 0


def test_what_does_not_fit_into_a_document_is_refused() -> None:
    table = SliceTable(None)
    job = {"name": "j", "queue_pairs": [{"dst": "10.1.0.2", "qpn": qpn} for qpn in range(15_000)]}
    table.set(_override(job=[job]))
    table.set(_override(job=[job], host="b"))
    with pytest.raises(ConfigError, match="the slices of a would be"):
        table.set(_override(job=[job], nic="eth1"))
    table.set(_override(job=[job]))
    assert [override.key for override in table.all()] == [("a", "eth0"), ("b", "eth0")]


def test_each_host_is_told_of_its_own_whether_it_probes_or_not() -> None:
    state = FleetState(Identity(timeline="t", starts=1), ProbeSettings(), continued=False)
    state.hear_hello(hello("a"), 0.0)
    state.hear_hello(hello("b"), 0.0)
    state.slicing.set(_override())
    assert state.documents() == []
    members = state.probeable(0.0)
    state.schedule(members[:1], state.build_graph(members[:1]))
    state.slicing.set(_override(host="b"))
    told = {document.host: document.slices for document in state.documents()}
    bulk = SliceSet(slice=(Slice(name="bulk", guaranteed="10gbit", match=(Match(dscp=8),)),))
    assert [(one.nic, one.wanted) for one in told["b"]] == [("eth0", bulk)]
    assert list(told) == ["b"]
