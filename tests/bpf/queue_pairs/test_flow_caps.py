"""The slice that holds an audit's flows to a cap: there while they last, and never in the place of others."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from machine import Namespace
from pyroute2 import IPRoute

from cwdp.agent.flows.caps import NAME, Caps
from cwdp.agent.flows.programs import ProgramError
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import CwdpError
from cwdp.shared.slices import Match, Slice, SliceSet
from cwdp.slices.slicing import Slicing

pytestmark = pytest.mark.kernel

NIC = "roce0"
PEERS = ("10.2.0.1", "fd00::1")
CAP_BPS = 50_000_000
OTHERS = SliceSet(
    slice=(Slice(name="others", guaranteed="10mbit", match=(Match(dscp=3),)),), link_rate="1gbit"
)


@contextmanager
def _slicing() -> Iterator[Slicing]:
    with tree.locked(), Maps(tree.here(NIC)) as maps, IPRoute() as ip:
        yield Slicing(maps, ip, NIC)


def _present() -> dict[str, tuple[int, set[str | None]]]:
    """The ceiling of each slice, and where to what it holds goes."""
    with _slicing() as slicing:
        return {
            one.name: (one.ceiling_bps, {match.dst for match in one.matches})
            for one in slicing.listed()
            if one.number
        }


@pytest.fixture
def caps(namespace: Namespace) -> Caps:
    """The test is in a namespace whose roce0 has the dataplane."""
    del namespace
    loader.load(NIC)
    return Caps([NIC])


def test_what_goes_to_the_far_ends_is_held_until_it_is_let_go(caps: Caps) -> None:
    caps.hold(NIC, PEERS, CAP_BPS)
    ((name, (ceiling_bps, peers)),) = _present().items()
    assert (name, ceiling_bps, len(peers)) == (NAME, CAP_BPS, len(PEERS))
    caps.let_go(NIC)
    assert _present() == {}
    caps.let_go(NIC)


def test_slices_that_are_there_stay_and_no_cap_is_held(caps: Caps) -> None:
    with _slicing() as slicing:
        slicing.apply(OTHERS)
    with pytest.raises(ProgramError, match="has slices of its own"):
        caps.hold(NIC, PEERS, CAP_BPS)
    caps.let_go(NIC)
    assert _present().keys() == {"others"}


def test_slices_that_come_meanwhile_stay(caps: Caps) -> None:
    caps.hold(NIC, PEERS, CAP_BPS)
    with _slicing() as slicing:
        slicing.apply(OTHERS)
    caps.let_go(NIC)
    assert _present().keys() == {"others"}


def test_a_cap_below_what_a_slice_may_have_is_refused(caps: Caps) -> None:
    with pytest.raises(CwdpError):
        caps.hold(NIC, PEERS, 1000)
    assert _present() == {}


def test_nics_without_a_dataplane_are_left_alone() -> None:
    caps = Caps([])
    caps.hold("no-such-nic", PEERS, CAP_BPS)
    caps.let_go("no-such-nic")
