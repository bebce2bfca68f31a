"""A fleet in arithmetic whose hosts send by TCP connections of a service, told apart by spines as switches hash them."""

from collections.abc import Callable
from ipaddress import ip_address

import numpy as np
from fabric_fakes import FakeClos
from msgspec.structs import replace

from cwdp.shared.addresses import address_bytes
from cwdp.shared.bus.messages import Desired, Hello, Nic, SteerReport, Trace, TraceReport
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.connections import TCP_ROW, NicConnections, TcpReport
from cwdp.shared.tcp import SteeredTcp, SteerTcp
from manager.clock.timeline import Identity
from manager.config import ProbeSettings
from manager.state import FleetState

STEP_S = 0.25
TCP_OFFSET = 7_919
"""A switch hashes a port of TCP as it does this much another one of UDP."""

RATE = 6_000_000
PORTS = {"h1": 40_001, "h2": 40_002}
PEER = {"h1": "h3", "h2": "h4", "h3": "h1", "h4": "h2"}


class TcpFleet:
    """Two leaves of two hosts below two spines; h1 and h2 send to h3 and h4, by connections of a service.

    Hosts tell of connections if they name their service, and of what is steered; they do as they are told, unless they only observe.
    `as_steered` makes of what a host was told what it says of it.
    """

    def __init__(self, *, tells: bool = True, version: int = 4) -> None:
        self.clos = FakeClos(leaves=2, spines=2, hosts_per_leaf=2, version=version)
        self.state = FleetState(
            Identity(timeline="t", starts=1), ProbeSettings(degree=4, paths=4), continued=False
        )
        self.now_s, self.sends = 100.0, True
        self.names, self.observers = set(self.clos.hosts), set[str]()
        self.as_steered: Callable[[SteerTcp], SteeredTcp] = steered
        self.tells = set(self.clos.hosts) if tells else set[str]()
        for host in self.clos.hosts:
            self.state.hear_hello(self.hello(host), self.now_s)
            self._tell_steered(host, [])
        members = self.state.probeable(self.now_s)
        documents = self.state.schedule(members, self.state.build_graph(members))
        self.documents = {document.host: document for document in documents}

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            for host, document in self.documents.items():
                self.state.hear_hello(self.hello(host), self.now_s)
                self.state.discovery.hear(TraceReport(host=host, traces=self._traces(host, document)))
                if self.sends and host in self.names:
                    self.state.traffic.hear_tcp(self._connections(host), self.now_s)
                self._tell_steered(host, document.tcp)
            self.state.discovery.learn(self.now_s)
            for changed in (*self.state.discover(self.now_s), *self.state.plan(self.now_s)):
                self.documents[changed.host] = changed

    def spine(self, host: str) -> str:
        """The spine that the connection of a host crosses, by what it is told."""
        (steer,) = self.documents[host].tcp
        here, there = (self.clos.hosts[each][0] for each in (host, PEER[host]))
        return self.clos.way(here, there, steer.sport + TCP_OFFSET)[1]

    def hello(self, host: str) -> Hello:
        address = self.clos.hosts[host][0].address
        v4 = address if self.clos.version == 4 else None
        v6 = address if self.clos.version == 6 else None
        nic = Nic(ifname="nic0", mac="", ipv4=v4, ipv6=v6, carrier=True, mode="native")
        return Hello(
            host=host,
            boot_id="b",
            version="",
            dataplane_tag="",
            nics=[nic],
            desired_version=0,
            key_ids=[1],
            observe_only=host in self.observers,
        )

    def _traces(self, host: str, document: Desired) -> list[Trace]:
        nics = {nic.name: nic for nic in self.clos.all_nics}
        here, found = nics[f"{host}/nic0"], []
        for order in document.traces:
            there = nics[self.clos.addresses[order.dst_addr]]
            found += [self.clos.trace(here, there, sport) for sport in order.sports]
        for order in document.tcp_traces:
            there = nics[self.clos.addresses[order.dst_addr]]
            found += [
                replace(self.clos.trace(here, there, sport + TCP_OFFSET), sport=sport, protocol=6)
                for sport in order.sports
            ]
        return found

    def _connections(self, host: str) -> TcpReport:
        row, far = np.zeros(1, TCP_ROW), PEER[host]
        for end, each in (("local", host), ("remote", far)):
            address = ip_address(self.clos.hosts[each][0].address)
            row[f"{end}_addr"] = np.frombuffer(address_bytes(address), np.uint8)
        row["local_port"], row["remote_port"] = PORTS.get(host, 5_201), PORTS.get(far, 5_201)
        row["state"], row["bytes_acked"] = 1, round(RATE * self.now_s) if host in PORTS else 0
        nic = NicConnections(nic="nic0", rows=row_bytes(row))
        return TcpReport(host=host, at_ns=round(self.now_s * 1e9), nics=[nic], services=["x"])

    def _tell_steered(self, host: str, steers: list[SteerTcp]) -> None:
        told = [self.as_steered(steer) for steer in steers] if host in self.tells else None
        self.state.hear_steering(SteerReport(host=host, managed=[], by_hand=[], tcp=told), self.now_s)


def steered(steer: SteerTcp, *, failed_over: bool = False, confirmed: bool = True) -> SteeredTcp:
    return SteeredTcp(
        steer=steer,
        managed=True,
        confirmed=confirmed,
        used_sport=(steer.backup_sport or 0) if failed_over else steer.sport,
        failed_over=failed_over,
    )
