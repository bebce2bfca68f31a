"""An upgrade keeps what the maps hold and loses no packet."""

import itertools
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machine import Machine, Namespace, running, set_namespace
from probes import request

from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.loading import hooks, loader
from cwdp.dataplane.loading.loader import Settings
from cwdp.dataplane.pinned import meta, tree
from cwdp.dataplane.pinned.maps import Maps, shared
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.errors import DataplaneError, VersionError
from cwdp.shared.testclock import TestClock

pytestmark = pytest.mark.kernel

UPGRADES = 10
PACE_S = 0.0005
PORT = 9999


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, other_build: Path) -> list[Path]:
    """This build and another, by turns for `loader.OBJECT`."""
    monkeypatch.setattr(loader, "OBJECT", loader.OBJECT)
    return [loader.OBJECT, other_build]


def test_needs_asking(namespace: Namespace, builds: list[Path]) -> None:
    old = loader.load("roce0")
    loader.OBJECT = builds[1]
    with pytest.raises(VersionError, match=old.tag) as caught:
        loader.load("roce0")
    assert caught.value.hint.endswith("cwdp dataplane upgrade roce0")
    assert loader.inspect(old.where).tag == old.tag
    assert loader.upgrade("roce0").changed
    assert not loader.upgrade("roce0").changed
    assert not loader.load("roce0").changed


def test_nothing_to_upgrade(namespace: Namespace) -> None:
    with pytest.raises(DataplaneError, match="no dataplane to upgrade") as caught:
        loader.upgrade("roce0")
    assert caught.value.hint == "run: cwdp dataplane load roce0"


def test_keeps_maps_and_settings(namespace: Namespace, builds: list[Path]) -> None:
    where = loader.load("roce0", Settings(probe_port=18515)).where
    with Maps(where) as maps:
        maps.set_key(9, bytes(range(16)))
        maps.slots["t1"][1234] = 77
        maps.write_clock(ref_local_ns=5, offset_ns=6, drift=1e-6, bound_ns=7, bound_drift=1e-9)
        with libbpf.opened(where.path / "xdp_ingress") as program:
            libbpf.prog_test_run(program, bytes(60))
        line, counters = maps.read_clock(), maps.counters()
        loader.OBJECT = builds[1]
        loader.upgrade("roce0")
        with Maps(where) as new:
            assert new.key_ids() == [9]
            assert new.slots["t1"][1234] == 77
            assert (new.read_clock(), new.counters()) == (line, counters)
            maps.slots["t1"][1234] = 78
            assert new.slots["t1"][1234] == 78
    with libbpf.opened(where.path / tree.SETTINGS_MAP) as fd:
        assert libbpf.map_lookup(fd, 0, abi.SETTINGS.itemsize)[:2] == (18515).to_bytes(2, "little")


def test_keeps_the_clock_of_a_lab(namespace: Namespace, builds: list[Path]) -> None:
    rates = np.array([1e-5, -2e-5, 0.0, 5e-4])
    clock = TestClock.from_frequencies(time.monotonic_ns(), 10**12, rates, rates, np.zeros(4))
    where = loader.load("roce0", Settings(test_clock=clock)).where
    with Maps(where) as maps:
        maps.write_base(ref_mono_ns=5, ahead_ns=6, rate=1e-6)
    loader.OBJECT = builds[1]
    loader.upgrade("roce0")
    with Maps(where) as maps:
        assert maps.read_base()["ahead_ns"] == 6
    with libbpf.opened(where.path / "test_clock") as fd:
        curve = shared(fd, abi.TEST_CLOCK_STEP)
        assert curve["rate_q40"].tolist() == clock.clock.rate_q40.tolist()
        assert curve["phase_q16"].tolist() == clock.clock.phase_q16.tolist()


def test_a_failed_upgrade_leaves_the_old_programs(
    namespace: Namespace, builds: list[Path], held_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XDP has been given the new program when tc egress refuses it."""
    where = loader.load("roce0").where
    before = programs(where)
    owner, name, call = {"tcx": (libbpf, "link_update", 2), "clsact": (hooks, "attach_clsact", 1)}[held_by]
    real, calls = getattr(owner, name), itertools.count(1)

    def fails_once(*arguments: Any) -> None:
        if next(calls) == call:
            raise DataplaneError("there is no memory")
        real(*arguments)

    monkeypatch.setattr(owner, name, fails_once)
    tag, loader.OBJECT = loader.object_tag(), builds[1]
    with pytest.raises(DataplaneError, match="there is no memory"):
        loader.upgrade("roce0")
    assert programs(where) == before
    assert loader.inspect(where).tag == tag


def programs(where: TreePath) -> list[int | None]:
    """The kernel's numbers of the programs that run."""
    return [running(where, hook) for hook in (hooks.XDP, hooks.EGRESS)]


@pytest.mark.parametrize(
    ("layout", "lacks"),
    [*zip(meta.LAYOUTS_BEFORE, [tree.LATER_MAPS, tree.BURST_MAPS], strict=True)],
    ids=[*map(str, meta.LAYOUTS_BEFORE)],
)
def test_what_a_layout_before_has_is_taken_over(
    namespace: Namespace, builds: list[Path], layout: int, lacks: tuple[str, ...]
) -> None:
    where = loader.load("roce0").where
    with Maps(where) as maps:
        maps.slots["t1"][1234] = 77
        with libbpf.opened(where.path / "xdp_ingress") as program:
            libbpf.prog_test_run(program, bytes(60))
        counters, generation = maps.counters(), int(maps.control["generation"][0])
    record = meta.read(where.path)
    record["abi"] = layout
    meta.write(where.path, record)
    for name in lacks:
        (where.path / name).unlink()
    with pytest.raises(VersionError, match=f"has layout {layout}"):
        loader.inspect(where)
    with Maps(where) as before:
        assert before.counters() == counters
    loader.OBJECT = builds[1]
    assert loader.upgrade("roce0").changed
    assert not loader.load("roce0").changed
    with Maps(where) as new:
        assert new.slots["t1"][1234] == 77
        assert new.counters() == counters
        assert not new.tcp_conns["flags"].any()
        assert not new.bursts["number"].any()
        assert int(new.control["generation"][0]) > generation


def test_maps_of_another_layout_are_refused(namespace: Namespace, builds: list[Path]) -> None:
    where = loader.load("roce0").where
    before = programs(where)
    (where.path / "slots").unlink()
    with libbpf.opened(where.path / "clock") as wrong:
        libbpf.pin(wrong, where.path / "slots")
    loader.OBJECT = builds[1]
    with pytest.raises(VersionError, match="another layout") as caught:
        loader.upgrade("roce0")
    assert "cwdp dataplane unload roce0" in caught.value.hint
    assert programs(where) == before


class Answerer(threading.Thread):
    """Answers datagrams in another namespace until told to stop."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__()
        with namespace.entered():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.bind(("10.9.0.2", PORT))
        self._socket.settimeout(0.1)
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                data, sender = self._socket.recvfrom(64)
            except TimeoutError:
                continue
            self._socket.sendto(data, sender)

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self._socket.close()


def test_loses_no_packet(namespace: Namespace, builds: list[Path]) -> None:
    """Datagrams go out through tc and come home through XDP, all the while that upgrades follow each other."""
    far = Namespace()
    subprocess.run(
        ["ip", "link", "set", "far0", "netns", f"/proc/self/fd/{far.fd}"], check=True, pass_fds=[far.fd]
    )
    ip("addr", "add", "10.9.0.1/24", "dev", "roce0")
    with far.entered():
        ip("addr", "add", "10.9.0.2/24", "dev", "far0")
        ip("link", "set", "far0", "up")
    loader.load("roce0")
    answerer = Answerer(far)
    answerer.start()
    done = threading.Event()
    lost: list[int] = []
    sender = threading.Thread(target=lambda: lost.extend(ping_pong(namespace, done)))
    sender.start()
    try:
        for n in range(UPGRADES):
            loader.OBJECT = builds[(n + 1) % 2]
            assert loader.upgrade("roce0").changed
    finally:
        done.set()
        sender.join()
        answerer.stop()
        far.close()
    sent, home = lost
    assert sent > 10 * UPGRADES
    assert home == sent


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def ping_pong(namespace: Namespace, done: threading.Event) -> tuple[int, int]:
    """How many datagrams were sent, and how many came home; run in a thread of its own, which moves."""
    set_namespace(namespace.fd)
    sent, home = 0, set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        near.setblocking(False)
        deadline = None
        while deadline is None or time.monotonic() < deadline:
            if deadline is None:
                near.sendto(sent.to_bytes(4, "big"), ("10.9.0.2", PORT))
                sent += 1
                if done.is_set():
                    deadline = time.monotonic() + 0.3
            home |= drained(near)
            time.sleep(PACE_S)
    return sent, len(home)


def drained(near: socket.socket) -> set[bytes]:
    """What waits in the socket."""
    found = set()
    while True:
        try:
            found.add(near.recv(64))
        except BlockingIOError:
            return found


def test_probes_under_way_come_home(builds: list[Path]) -> None:
    """A request sent by the old program is reflected and accepted by the new one."""
    made = Machine()
    try:
        sent = made.egress(request(seq=3)).packet
        loader.OBJECT = builds[1]
        with made.namespace.entered():
            loader.upgrade("roce0")
        made.reopen()
        reply = made.ingress(sent).packet
        assert made.ingress(reply).counted == {abi.Reason.REPLY_ACCEPTED: 1}
    finally:
        made.close()
