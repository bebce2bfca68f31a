"""Windows of probes to hosts of other pods, put on this pod's timeline."""

import numpy as np
from fakes import hello, nic
from msgspec.structs import replace
from numpy.typing import NDArray

from cwdp.shared.bus.records import (
    NO_DELAY_NS,
    WINDOW_DELAYS,
    WINDOW_NS,
    WINDOW_ROW,
    packed_address,
    told_delays,
)
from cwdp.shared.bus.windows import PLACED_ROW
from manager.clock.apart import Apart
from manager.hosts.elsewhere import PodHost
from manager.hosts.members import Members
from manager.paths.far import WIDEST_NS, FarPaths
from manager.paths.told import HostPaths

OURS, FAR, UNTOLD, NOBODYS = "10.0.0.2", "10.1.0.1", "10.2.0.1", "10.9.9.9"
AHEAD_NS, RATE, WINDOW = 7 * 10**12 + 3, 1e-5, 500
DELAY_NS = 4_000


def _members() -> Members:
    members = Members()
    for host, address in (("a", "10.0.0.1"), ("b", OURS)):
        members.hear(replace(hello(host), nics=[nic("eth0", ipv4=address, ipv6=None)]), 0.0)
    for pod, address in (("far", FAR), ("untold", UNTOLD)):
        told = [PodHost(host=f"{pod}1", nics=[nic("eth0", ipv4=address, ipv6=None)])]
        members.elsewhere.take(pod, told, epoch=1, number=1, timeline=pod, now_s=0.0)
    members.follow_elsewhere(0.0)
    return members


def _table() -> HostPaths:
    paths = np.zeros(4, WINDOW_ROW)
    packed = b"".join(packed_address(address) for address in (OURS, FAR, UNTOLD, NOBODYS))
    paths["dst_addr"] = np.frombuffer(packed, np.uint8).reshape(-1, 16)
    return HostPaths("a", ["eth0"], ["a/eth0"], b"", 0, paths, np.ones(4, bool), names_all_nics=True)


def _rows(ahead_ns: int) -> NDArray[np.void]:
    """One of each path, as an agent tells it, of three windows each."""
    rows = np.zeros(4, PLACED_ROW)
    rows["path"], rows["window"], rows["further"], rows["bound_ns"] = range(4), WINDOW, 2, 50
    fwd_ns, rev_ns = told_delays(np.array([DELAY_NS + ahead_ns]), np.array([DELAY_NS - ahead_ns]))
    for name in WINDOW_DELAYS:
        rows[name] = fwd_ns if name.startswith("fwd") else rev_ns
    return rows


def test_delays_are_put_on_this_timeline_where_it_is_known_how_far_the_other_is() -> None:
    members, table = _members(), _table()
    middle_ns = WINDOW * WINDOW_NS + 3 * WINDOW_NS // 2
    apart = Apart(
        ref_ns=middle_ns - 10**9, ahead_ns=AHEAD_NS, frac_ns=0.25, rate=RATE, bound_ns=30.0, bound_rate=1e-8
    )
    members.elsewhere.apart = {"far": apart}
    told = _rows(AHEAD_NS + round(RATE * 1e9))
    rows = FarPaths(members).on_our_timeline(table, told)
    for name in WINDOW_DELAYS:
        assert rows[name].tolist() == [told[name][0], DELAY_NS, NO_DELAY_NS, NO_DELAY_NS]
    smeared_ns = round(RATE * 3 * WINDOW_NS / 2)
    assert rows["bound_ns"][[0, 2, 3]].tolist() == [50, 50, 50]
    assert 0 <= rows["bound_ns"][1] - (50 + 30 + 10 + smeared_ns) <= 1
    assert (told["bound_ns"] == 50).all(), "what was told stays as it is"


def test_what_is_not_known_any_more_or_has_no_delay_gives_none_and_bounds_stay_numbers() -> None:
    members, table = _members(), _table()
    far = FarPaths(members)
    assert far.on_our_timeline(table, _rows(AHEAD_NS))["fwd_min_ns"][1] == NO_DELAY_NS
    wide = Apart(ref_ns=0, ahead_ns=AHEAD_NS, frac_ns=0.0, rate=0.0, bound_ns=1e12, bound_rate=0.0)
    members.elsewhere.apart = {"far": wide}
    rows = _rows(AHEAD_NS)
    rows["rev_min_ns"] = NO_DELAY_NS
    moved = far.on_our_timeline(table, rows)
    assert (moved["fwd_min_ns"][1], moved["rev_min_ns"][1]) == (DELAY_NS, NO_DELAY_NS)
    assert moved["bound_ns"][1] == WIDEST_NS
    members.elsewhere.take("far", [], epoch=1, number=2, timeline="far", now_s=1.0)
    members.follow_elsewhere(1.0)
    assert far.on_our_timeline(table, rows)["fwd_min_ns"][1] == NO_DELAY_NS


def test_without_other_pods_rows_are_as_they_were() -> None:
    rows = _rows(0)
    assert FarPaths(Members()).on_our_timeline(_table(), rows) is rows
