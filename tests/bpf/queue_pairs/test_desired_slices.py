"""Slices that the manager wants, as the agent applies them to an interface: kept, given back, and not against the hand."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from machine import Namespace, add_veth, delete_link
from pyroute2 import IPRoute
from pyroute2.netlink.rtnl import TC_H_ROOT
from waiting import until

from cwdp.agent.steering import desired
from cwdp.agent.steering.slicing import DesiredSlices
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.shared.bus.messages import NicSlices
from cwdp.shared.slices import Match, Slice, SliceSet
from cwdp.slices.slicing import Slicing

pytestmark = pytest.mark.kernel

NIC = "roce0"


def _of(*guaranteed: str) -> SliceSet:
    slices = (
        Slice(name=f"s{i}", guaranteed=rate, match=(Match(dscp=i),)) for i, rate in enumerate(guaranteed)
    )
    return SliceSet(slice=tuple(slices), link_rate="1gbit")


@contextmanager
def _slicing() -> Iterator[Slicing]:
    with tree.locked(), Maps(tree.here(NIC)) as maps, IPRoute() as ip:
        yield Slicing(maps, ip, NIC)


def _present() -> tuple[bool, dict[str, int]]:
    """Whether the slices are the agent's, and what each is guaranteed."""
    with _slicing() as slicing:
        return slicing.managed, {one.name: one.guaranteed_bps for one in slicing.listed() if one.number}


class _Following:
    """What follows the desired state, in a thread of its own; told of them as the agent would tell."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._desired = DesiredSlices([NIC], lambda _, why: self.refused.append(why))
        self._job = self._loop.create_task(self._desired.follow())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def want(self, wanted: SliceSet | None) -> None:
        slices = [] if wanted is None else [NicSlices(nic=NIC, wanted=wanted)]
        self._loop.call_soon_threadsafe(self._desired.want, slices)

    def loaded(self) -> None:
        self._loop.call_soon_threadsafe(self._desired.loaded, NIC)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._job.cancel)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(asyncio.wait([self._job]))


@pytest.fixture
def following(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Following]:
    """The test is in a namespace whose roce0 has the dataplane."""
    del namespace
    monkeypatch.setattr(desired, "RETRY_S", 0.05)
    loader.load(NIC)
    made = _Following()
    try:
        yield made
    finally:
        made.end()


def test_what_is_wanted_is_applied_changed_and_taken_away(following: _Following) -> None:
    following.want(_of("10mbit", "20mbit"))
    until(lambda: _present() == (True, {"s0": 10**7, "s1": 2 * 10**7}))
    following.want(_of("30mbit"))
    until(lambda: _present() == (True, {"s0": 3 * 10**7}))
    following.want(None)
    until(lambda: _present() == (False, {}))
    assert following.refused == []


def test_what_was_applied_by_hand_stays_until_it_is_let_go(following: _Following) -> None:
    with _slicing() as slicing:
        slicing.apply(_of("5mbit"))
    following.want(None)
    time.sleep(0.2)
    following.want(_of("10mbit"))
    until(lambda: len(following.refused) == 1)
    time.sleep(0.2)
    assert _present() == (False, {"s0": 5 * 10**6})
    with _slicing() as slicing:
        slicing.delete()
    until(lambda: _present() == (True, {"s0": 10**7}))
    assert following.refused == [f"the slices of {NIC} were applied by hand"]


def test_slices_come_back_after_somebody_took_them_away(following: _Following) -> None:
    wanted = (True, {"s0": 10**7})
    following.want(_of("10mbit"))
    until(lambda: _present() == wanted)
    with _slicing() as slicing:
        slicing.delete()
    until(lambda: _present() == wanted)
    with IPRoute() as ip:
        ip.tc("del", index=ifindex_of(NIC), parent=TC_H_ROOT)
    until(_holds)
    assert following.refused == []


def test_slices_are_applied_to_a_dataplane_loaded_anew(following: _Following) -> None:
    wanted = (True, {"s0": 10**7})
    following.want(_of("10mbit"))
    until(lambda: _present() == wanted)
    loader.unload(NIC)
    loader.load(NIC)
    following.loaded()
    until(lambda: _present() == wanted)
    loader.unload(NIC)
    delete_link(NIC)
    add_veth(NIC, "far0")
    loader.load(NIC)
    following.loaded()
    until(lambda: _present() == wanted and _holds())


def test_what_the_link_cannot_give_is_refused_and_what_was_stays(following: _Following) -> None:
    following.want(_of("10mbit"))
    until(lambda: _present() == (True, {"s0": 10**7}))
    following.want(_of("600mbit", "500mbit"))
    until(lambda: len(following.refused) == 1)
    assert _present() == (True, {"s0": 10**7})
    (refused,) = following.refused
    assert "600mbit + 500mbit = 1.1gbit" in refused


def _holds() -> bool:
    with _slicing() as slicing:
        return slicing.holding
