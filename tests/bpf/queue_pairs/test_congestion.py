"""Congestion control against the kernel: queue pairs held apart, rates moved, paths watched, all let go at the end."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import msgspec
import numpy as np
import pytest
from machine import Namespace
from pyroute2 import IPRoute
from waiting import WAIT_S, until

from cwdp.agent.pacing.process import CongestionHost
from cwdp.congestion import interface
from cwdp.congestion.leaf import Limits as LeafLimits
from cwdp.congestion.leaf import change_class, open_netlink, take_errors
from cwdp.congestion.order import Order
from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Enforcer, SlotState
from cwdp.dataplane.addresses import address_words
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.shared.slices import Match, Slice, SliceSet
from cwdp.slices.edt import NS_BITS_PER_BYTE, PACE_SHIFT
from cwdp.slices.htb import QP_CLASSES, class_id
from cwdp.slices.slicing import EVERYTHING, Slicing

pytestmark = pytest.mark.kernel

NIC = "roce0"
LINK_BPS = 1_000_000_000
ORDER = Order(NIC, 1, 1_000.0, "1gbit")
ROW = 777
FIRST = class_id(1) + 1
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def classes(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maps]:
    """Of an interface whose queue pairs have classes, as on kernels without fq."""
    del namespace
    monkeypatch.setattr("cwdp.slices.slicing.put_fq", lambda *_: False)
    with _held_apart() as maps:
        yield maps


@pytest.fixture
def departures(namespace: Namespace) -> Iterator[Maps]:
    """Of an interface whose queue pairs have departure times."""
    del namespace
    with _held_apart() as maps:
        if Enforcer(int(maps.slice_table["enforcer"][0])) is not Enforcer.EDT:
            pytest.skip("this kernel has no fq")
        yield maps


@pytest.fixture(params=["classes", "departures"])
def maps(request: pytest.FixtureRequest) -> Maps:
    found: Maps = request.getfixturevalue(request.param)
    return found


@contextmanager
def _held_apart() -> Iterator[Maps]:
    loader.load(NIC)
    with Maps(tree.here(NIC)) as opened:
        with _slicing(opened) as slicing:
            slicing.hold_apart("1gbit")
        yield opened
        with _slicing(opened) as slicing:
            slicing.delete()
    loader.unload(NIC)


@contextmanager
def _slicing(maps: Maps) -> Iterator[Slicing]:
    with tree.locked(), IPRoute() as ip:
        yield Slicing(maps, ip, NIC)


def _ceilings_bps() -> dict[int, int]:
    """Of all classes."""
    with IPRoute() as ip:
        classes = ip.get_classes(index=ifindex_of(NIC))
    return {
        c["handle"]: c.get_attr("TCA_OPTIONS").get_attr("TCA_HTB_PARMS")["ceil"] * 8
        for c in classes
        if c.get_attr("TCA_KIND") == "htb"
    }


def _rate_bps(maps: Maps) -> float:
    """What the sender's queue pair is held to."""
    if maps.slices["leaves"][1]:
        return _ceilings_bps()[FIRST]
    pace_q18 = int(maps.qps[Direction.EGRESS]["pace_q18"][ROW])
    return (NS_BITS_PER_BYTE << PACE_SHIFT) / pace_q18 if pace_q18 else LINK_BPS


def test_without_slices_there_is_one_of_everything(maps: Maps) -> None:
    with _slicing(maps) as slicing:
        assert slicing.unasked
        assert not slicing.managed
        listed = {one.name: one for one in slicing.listed() if one.number}
        assert set(listed) == {EVERYTHING}
        assert (listed[EVERYTHING].ceiling_bps, listed[EVERYTHING].qp_bps) == (LINK_BPS, LINK_BPS)
        slicing.hold_apart("1gbit")
        assert [one for one in slicing.listed() if one.number] == [listed[EVERYTHING]]


def test_each_queue_pair_has_a_class(classes: Maps) -> None:
    assert classes.slices["leaves"][1] == QP_CLASSES
    assert len(_ceilings_bps()) == 4 + QP_CLASSES


def test_slices_that_are_asked_for_take_its_place_and_keep_queue_pairs_apart(maps: Maps) -> None:
    wanted = SliceSet(
        slice=(Slice(name="a", guaranteed="100mbit", ceiling="200mbit", match=(Match(dscp=8),)),),
        link_rate="1gbit",
    )
    with _slicing(maps) as slicing:
        slicing.apply(wanted, managed=True)
        assert slicing.managed
        assert not slicing.unasked
        (only,) = (one for one in slicing.listed() if one.number)
        assert (only.name, only.qp_bps) == ("a", 200_000_000)
        assert maps.slices["leaves"][only.number] == QP_CLASSES or maps.slices["qp_pace_q18"][only.number]
        slicing.delete()
        slicing.apply(wanted)
        (only,) = (one for one in slicing.listed() if one.number)
        assert only.qp_bps == 200_000_000
        slicing.hold_together()
        slicing.apply(wanted)
        (only,) = (one for one in slicing.listed() if one.number)
        assert only.qp_bps == 0


def test_the_slice_of_everything_goes_with_congestion_control(maps: Maps) -> None:
    interface.clear(NIC)
    with _slicing(maps) as slicing:
        assert slicing.enforcer is Enforcer.NONE
        assert not slicing.holding


def test_a_class_is_changed_and_one_that_is_not_there_is_refused(classes: Maps) -> None:
    del classes
    netlink, index = open_netlink(), ifindex_of(NIC)
    limits = LeafLimits(rate_bps=80_000, ceiling_bps=50e6, priority=3, quantum_bytes=1_518)
    netlink.send(change_class(index, FIRST, class_id(1), limits))
    assert take_errors(netlink) == 0
    assert _ceilings_bps()[FIRST] == 50_000_000
    netlink.send(change_class(index, class_id(9), class_id(1), limits))
    assert take_errors(netlink) == 1
    netlink.close()


class Sender:
    """A queue pair that sends much, over a path whose delay can be chosen."""

    def __init__(self, maps: Maps) -> None:
        self._maps, self._row = maps, maps.qps[Direction.EGRESS][ROW : ROW + 1]
        self._row["key"]["addr"] = address_words(ip_address("10.0.0.1"))
        self._row["key"]["qpn"], self._row["used_sport"] = 5, 50_000
        self._row["slice"], self._row["priority"], self._row["tag"] = 1, FIRST, 99
        self._seq = 1_000

    def send(self, queue_ns: int) -> None:
        """Send for a moment, and have a pulse answered."""
        self._row["bytes"] += 600_000
        (paths,) = np.nonzero(self._maps.paths["users"])
        if len(paths):
            self._seq += 1
            slot = self._maps.slots[abi.SLOTS + self._seq % abi.PULSE_SLOTS]
            slot["t1"], slot["path"], slot["bound_ns"] = time.monotonic_ns(), paths[0], 100
            slot["fwd_owd_ns"], slot["rev_owd_ns"] = 10_000 + queue_ns, 10_000
            slot["tag"] = self._seq << 32 | SlotState.DONE


def test_a_queue_pair_is_paced_while_its_path_is_full_and_let_go_after(maps: Maps) -> None:
    host, sender = CongestionHost(), Sender(maps)
    host.follow([ORDER])
    host.look_after()

    def paced_after(seconds: float, queue_ns: int) -> float:
        for _ in range(round(seconds / 0.01)):
            sender.send(queue_ns)
            host.step(time.monotonic_ns())
            time.sleep(0.01)
        return _rate_bps(maps)

    assert paced_after(0.5, 0) == LINK_BPS
    assert paced_after(1.0, 5_000_000) < LINK_BPS / 4
    assert [one.qpn for one in host.word().paced[NIC]] == [5]
    assert host.word().counters["congestion_episodes"] == 1
    assert paced_after(2.0, 0) == LINK_BPS
    assert host.word().paced[NIC] == []
    host.close()


def test_what_is_held_back_is_let_go_when_the_agent_is_gone(maps: Maps) -> None:
    sender = Sender(maps)

    def is_paced() -> bool:
        sender.send(5_000_000)
        return _rate_bps(maps) < LINK_BPS

    with subprocess.Popen(
        [sys.executable, "-m", "cwdp.agent.pacing.process"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode([ORDER]) + b"\n")
        process.stdin.flush()
        until(is_paced)
        process.stdin.close()
        assert process.wait(WAIT_S) == 0
    assert _rate_bps(maps) == LINK_BPS


def test_an_interface_that_is_not_there_is_counted_and_waited_for(namespace: Namespace) -> None:
    del namespace
    host = CongestionHost()
    host.follow([Order("gone0", 1, 1_000.0, None)])
    host.look_after()
    host.look_after()
    assert host.word().counters["congestion_failed"] == 2
    assert not host.step(time.monotonic_ns())
