"""Two hosts with dataplanes below two leaves and two spines, in network namespaces: real TCP sockets, real switches."""

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine import Namespace
from numpy.typing import NDArray
from probes import KEY, KEY_ID
from pyroute2 import IPRoute

from cwdp.agent.liveness.process import REFRESH_NS, PulseHost, PulseOrders
from cwdp.agent.liveness.pulses import PulseOrder
from cwdp.dataplane import abi
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.interface import ifindex_of
from cwdp.dataplane.kernel.libbpf import BpfObject
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.tcp import TcpConnection, TcpSteering
from cwdp.shared.addresses import read_address

MTU = 1500
PORT_OBJECT = loader.OBJECT.with_name("lab_port.bpf.o")
"""Gives the switch's end of a host's link what the host's XDP_TX needs."""

HOST_NIC = "roce0"
PULSE_NS = 2_000_000
SUBNETS = {4: ("10.1.0", "10.2.0", 24), 6: ("fd00:1::", "fd00:2::", 64)}
NO_DUPLICATE_DETECTION = 0x02


def host_address(side: int, version: int = 4) -> str:
    """Of host 0 or 1."""
    return f"{SUBNETS[version][side]}.2" if version == 4 else f"{SUBNETS[version][side]}2"


def _gateway(side: int, version: int) -> str:
    return f"{SUBNETS[version][side]}.1" if version == 4 else f"{SUBNETS[version][side]}1"


def _link_address(spine: int, side: int, end: int, version: int) -> str:
    return f"10.9.{2 * spine + side}.{1 + end}" if version == 4 else f"fd00:9:{2 * spine + side}::{1 + end}"


class Host:
    """One host: its dataplane, and what its agent's process for pulses does, in a thread."""

    def __init__(self, namespace: Namespace, side: int) -> None:
        self.namespace = namespace
        with namespace.entered():
            self.where = loader.load(HOST_NIC).where
        self.maps = Maps(self.where)
        self.maps.set_key(KEY_ID, KEY)
        self.maps.control["sample_below"] = 0
        self.steering = TcpSteering(self.maps)
        self._order = PulseOrder(
            HOST_NIC, 1, KEY_ID, abi.ROCE_PORT, host_address(side, 4), host_address(side, 6)
        )
        self._pulses = PulseHost(PULSE_NS)
        self.counters = self._pulses.counters
        self._ends = threading.Event()
        self.is_silent = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        refresh_ns = 0
        with self.namespace.entered():
            self._pulses.follow(PulseOrders([self._order], []))
            while not self._ends.wait(PULSE_NS / 1e9):
                now_ns = time.monotonic_ns()
                if self.is_silent:
                    continue
                if now_ns >= refresh_ns:
                    self._pulses.refresh(now_ns)
                    refresh_ns = now_ns + REFRESH_NS
                self._pulses.send(now_ns)
            self._pulses.follow(PulseOrders([], []))

    def watched(self) -> NDArray[np.void]:
        """The paths that have pulses, dtype `abi.PATH`."""
        paths = self.maps.paths
        records: NDArray[np.void] = paths[paths["users"] > 0]
        return records

    def connection(self, sock: socket.socket) -> TcpConnection:
        """A socket's connection as this host has it."""
        local, remote = sock.getsockname(), sock.getpeername()
        return TcpConnection(read_address(local[0]), read_address(remote[0]), local[1], remote[1])

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        self.maps.close()


@dataclass
class Switch:
    """A router, and its links by name."""

    namespace: Namespace

    def received_bytes(self, ifname: str) -> int:
        """That came in by a link."""
        with self.namespace.entered(), IPRoute() as ip:
            index = ip.link_lookup(ifname=ifname)[0]
            stats = ip.get_links(index)[0].get_attr("IFLA_STATS64")
        return int(stats["rx_bytes"])

    def set_mtu(self, ifname: str, mtu: int) -> None:
        with self.namespace.entered(), IPRoute() as ip:
            ip.link("set", index=ip.link_lookup(ifname=ifname)[0], mtu=mtu)

    def set_rate(self, ifname: str, rate_bps: int, queue_bytes: int) -> None:
        """Have what leaves by a link wait in a queue."""
        with self.namespace.entered(), IPRoute() as ip:
            index = ip.link_lookup(ifname=ifname)[0]
            ip.tc(
                "replace",
                "tbf",
                index=index,
                handle=0x10000,
                rate=rate_bps // 8,
                burst=5000,
                limit=queue_bytes,
            )

    def set(self, name: str, value: str) -> None:
        with self.namespace.entered():
            Path("/proc/sys/net", name).write_text(value)


class TwoSpines:
    """The whole of it. `spines[n]` receives from leaf 0 by `l0` and from leaf 1 by `l1`."""

    def __init__(self, *, hash_policy: int = 1) -> None:
        self._namespaces = [Namespace() for _ in range(6)]
        a, b, leaf0, leaf1, spine0, spine1 = self._namespaces
        self.leaves = [Switch(leaf0), Switch(leaf1)]
        self.spines = [Switch(spine0), Switch(spine1)]
        for switch in (*self.leaves, *self.spines):
            switch.set("ipv4/ip_forward", "1")
            switch.set("ipv6/conf/all/forwarding", "1")
            switch.set("ipv4/fib_multipath_hash_policy", str(hash_policy))
            switch.set("ipv6/fib_multipath_hash_policy", str(hash_policy))
        self._ports = BpfObject(PORT_OBJECT)
        self._ports.load()
        self._links: list[int] = []
        self._sockets: list[socket.socket] = []
        self._sports: dict[tuple[int, int], dict[int, int]] = {}
        for side, host in enumerate((a, b)):
            self._connect_host(host, side)
            for spine in range(2):
                self._connect_spine(spine, side)
        for side in range(2):
            self._route_over_spines(side)
        self.hosts = [Host(a, 0), Host(b, 1)]

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        for sock in self._sockets:
            sock.close()
        for link in self._links:
            os.close(link)
        self._ports.close()
        for namespace in self._namespaces:
            namespace.close()

    def _connect_host(self, host: Namespace, side: int) -> None:
        _wire(host, HOST_NIC, self.leaves[side].namespace, "host")
        with self.leaves[side].namespace.entered():
            program = self._ports.program_fd("lab_port")
            self._links.append(libbpf.link_create(program, ifindex_of("host"), libbpf.BPF_XDP))
        for version in (4, 6):
            length = SUBNETS[version][2]
            _address(host, HOST_NIC, host_address(side, version), length)
            _address(self.leaves[side].namespace, "host", _gateway(side, version), length)
            with host.entered(), IPRoute() as ip:
                ip.route("add", dst="default", gateway=_gateway(side, version), family=_family(version))

    def _connect_spine(self, spine: int, side: int) -> None:
        _wire(self.leaves[side].namespace, f"s{spine}", self.spines[spine].namespace, f"l{side}")
        for version in (4, 6):
            length = 24 if version == 4 else 64
            _address(self.leaves[side].namespace, f"s{spine}", _link_address(spine, side, 0, version), length)
            _address(self.spines[spine].namespace, f"l{side}", _link_address(spine, side, 1, version), length)
        self._route_from_spine(spine, side)

    def _route_from_spine(self, spine: int, side: int) -> None:
        with self.spines[spine].namespace.entered(), IPRoute() as ip:
            for version in (4, 6):
                ip.route(
                    "add",
                    dst=_subnet(side, version),
                    gateway=_link_address(spine, side, 0, version),
                    family=_family(version),
                )

    def _route_over_spines(self, side: int) -> None:
        for version in (4, 6):
            hops = [{"gateway": _link_address(spine, side, 1, version), "hops": 0} for spine in range(2)]
            with self.leaves[side].namespace.entered(), IPRoute() as ip:
                ip.route("add", dst=_subnet(1 - side, version), multipath=hops, family=_family(version))

    def cut(self, spine: int, *, sides: tuple[int, ...] = (0, 1)) -> None:
        """Have a spine swallow what is for these sides."""
        with self.spines[spine].namespace.entered(), IPRoute() as ip:
            for side in sides:
                for version in (4, 6):
                    ip.route("replace", dst=_subnet(side, version), type="blackhole", family=_family(version))

    def mend(self, spine: int) -> None:
        """Have a spine pass on again what it swallowed."""
        with self.spines[spine].namespace.entered(), IPRoute() as ip:
            for side in (0, 1):
                for version in (4, 6):
                    ip.route("del", dst=_subnet(side, version), type="blackhole", family=_family(version))
        for side in (0, 1):
            self._route_from_spine(spine, side)

    def pulses_took(self, longest_s: float) -> None:
        """No more pulses leave; those of the last seconds took so long at most."""
        for host in self.hosts:
            host.is_silent = True
        time.sleep(0.1)
        for host in self.hosts:
            host.maps.paths["slowest_ns"] = round(longest_s * 1e9)
            host.maps.tcp_conns["queued_us"] = 0

    def set_timers(self) -> None:
        """Of both hosts' sockets."""
        for host in self.hosts:
            with host.namespace.entered():
                host.steering.set_timers()

    def spine_of(self, sport: int, *, side: int = 0, version: int = 4) -> int:
        """Over which spine a TCP path from a host leads, as its leaf says."""
        return self._spine_of(("tcp", sport, abi.ROCE_PORT), side, version)

    def udp_spine_of(self, sport: int, dport: int) -> int:
        """Over which spine datagrams of host 0 go."""
        return self._spine_of(("udp", sport, dport), 0, 4)

    def _spine_of(self, flow: tuple[str, int, int], side: int, version: int) -> int:
        ends = {"from": host_address(side, version), "to": host_address(1 - side, version)}
        protocol, sport, dport = flow
        ports = ["ipproto", protocol, "sport", str(sport), "dport", str(dport)]
        command = ["ip", "-j", "route", "get", ends["to"], "from", ends["from"], "iif", "host", *ports]
        with self.leaves[side].namespace.entered():
            told = subprocess.run(command, check=True, capture_output=True)
        return int(json.loads(told.stdout)[0]["dev"].removeprefix("s"))

    def sports(self, side: int = 0, version: int = 4) -> tuple[int, int]:
        """Source ports of a path over spine 0 and of one over spine 1."""
        found = self._sports.setdefault((side, version), {})
        sports = iter(range(50_000, 50_100))
        while len(found) < len(self.spines):
            sport = next(sports)
            found.setdefault(self.spine_of(sport, side=side, version=version), sport)
        return found[0], found[1]

    def listener(self, side: int = 1, version: int = 4, port: int = 0) -> socket.socket:
        """Of a host."""
        with self.hosts[side].namespace.entered():
            made = socket.socket(_family(version))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host_address(side, version), port))
        made.listen()
        self._sockets.append(made)
        return made

    def connect(
        self, version: int = 4, listener: socket.socket | None = None
    ) -> tuple[socket.socket, socket.socket]:
        """A connection of host 0 to host 1, as both have it."""
        listens = listener or self.listener(version=version)
        with self.hosts[0].namespace.entered():
            near = socket.socket(_family(version))
        near.bind((host_address(0, version), 0))
        near.connect(listens.getsockname()[:2])
        far, _ = listens.accept()
        self._sockets += [near, far]
        if listener is None:
            listens.close()
        return near, far


@contextlib.contextmanager
def two_spines(*, hash_policy: int = 1) -> Iterator[TwoSpines]:
    """Two hosts below two spines for a while."""
    made = TwoSpines(hash_policy=hash_policy)
    try:
        yield made
    finally:
        made.close()


def _family(version: int) -> int:
    return socket.AF_INET if version == 4 else socket.AF_INET6


def _subnet(side: int, version: int) -> str:
    start, length = SUBNETS[version][side], SUBNETS[version][2]
    return f"{start}.0/{length}" if version == 4 else f"{start}/{length}"


def _wire(here: Namespace, name: str, there: Namespace, far_name: str) -> None:
    with here.entered(), IPRoute() as ip:
        ip.link("add", ifname=name, kind="veth", peer={"ifname": far_name, "net_ns_fd": there.fd}, mtu=MTU)
    for namespace, ifname in ((here, name), (there, far_name)):
        with namespace.entered(), IPRoute() as ip:
            ip.link("set", index=ip.link_lookup(ifname=ifname)[0], state="up")


def _address(namespace: Namespace, ifname: str, address: str, length: int) -> None:
    with namespace.entered(), IPRoute() as ip:
        index = ip.link_lookup(ifname=ifname)[0]
        ip.addr("add", index=index, address=address, prefixlen=length, flags=NO_DUPLICATE_DETECTION)
