"""`python -m cwdp.agent.goback.process INTERVAL_MS`: has queue pairs go back that wait for what a dead path has swallowed.

Once a path is given up, each queue pair over it with requests under way is told so, by a NAK in the far end's place
(`cwdp.agent.goback.packets`): else it would wait for its timer. What a queue pair has acknowledged over that path may be lost
as well, so it is sent again. Whether the path is given up the dataplane says, by taking the packet or dropping it
(`bpf/steering/go_back.h`). Only queue pairs that the kernel has, and whose driver is known to take it: those of Soft-RoCE.

A process of its own, as nothing that the agent does may make it late. The agent (`cwdp.agent.goback.keeper`) writes its
orders to standard input, one line of JSON each, and reads totals from standard output, once a second. Its end is the end
of standard input.
"""

import errno
import os
import socket
import sys
import time
from collections import Counter
from contextlib import suppress
from ipaddress import ip_address

import msgspec
import numpy as np

from cwdp.agent.goback.packets import acknowledgement, nak
from cwdp.agent.goback.unacknowledged import Name, Unacknowledged, Waiting
from cwdp.agent.inet import family_of
from cwdp.agent.orders import Orders
from cwdp.agent.probing.sender import cookie_of, sending_socket
from cwdp.dataplane import abi
from cwdp.dataplane.abi import PathState, Sender
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import RdmaError
from cwdp.rdma import netlink, sysfs
from cwdp.rdma.netlink import QueuePair
from cwdp.shared.addresses import Address

PROVED = frozenset({"rxe"})
"""Drivers whose queue pairs are known to go back."""

COUNTERS = (
    "go_backs_sent", "go_backs_unsent", "go_backs_unknown", "go_backs_retrying", "go_back_acks_sent", "go_back_failed",
)  # fmt: skip
LOOK_NS, SAY_NS, IDLE_S = 1_000_000_000, 1_000_000_000, 0.05
LOOK_SHARE = 5
"""A look at the kernel's list of queue pairs takes a fifth of the time at most."""

DEVICES_NS = 60_000_000_000

_SENDERS = {socket.AF_INET: Sender.GO_BACK_IPV4, socket.AF_INET6: Sender.GO_BACK_IPV6}
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_REPORT_ERRORS = {
    socket.AF_INET: (socket.SOL_IP, _IP_RECVERR),
    socket.AF_INET6: (socket.IPPROTO_IPV6, _IPV6_RECVERR),
}


class GoBackOrder(msgspec.Struct, frozen=True):
    """A NIC whose queue pairs are to be told.

    Attributes:
        load: changes whenever the dataplane was loaded anew, so that its maps are opened anew.
        ipv4, ipv6: its addresses.
    """

    ifname: str
    load: int
    ipv4: str | None
    ipv6: str | None

    def address(self, version: int) -> Address | None:
        """Its address of an IP version."""
        text = self.ipv4 if version == 4 else self.ipv6
        return None if text is None else ip_address(text)


class GoBackSender:
    """The raw sockets of one NIC from which packets go to the dataplane, which takes or drops them."""

    def __init__(self, ifname: str, maps: Maps) -> None:
        self._ifname, self._maps = ifname, maps
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}

    def send(self, packet: bytes, peer: Address, priority: int = 0) -> bool:
        """Say something for a queue pair whose packets are for that peer; whether it was taken.

        Of a NAK the priority is the QPN that those packets are for.

        Raises:
            OSError: the packet did not come as far as the dataplane.
        """
        family = family_of(str(peer))
        sock = self._sockets.get(family) or self._open(family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
        try:
            sock.sendto(packet, (str(peer), 0))
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return False
        return True

    def close(self) -> None:
        """Close the sockets."""
        for sock in self._sockets.values():
            sock.close()

    def _open(self, family: socket.AddressFamily) -> socket.socket:
        sock = self._sockets[family] = sending_socket(self._ifname, family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, abi.MARK)
        sock.setsockopt(*_REPORT_ERRORS[family], 1)  # without it a packet that was dropped is no error
        self._maps.sign_for(_SENDERS[family], cookie_of(sock))
        return sock


class _Settled(msgspec.Struct, frozen=True):
    """After which switch, and of which PSN, a queue pair was told, or known not to be worth it."""

    path: int
    flaps: int
    psn: int | None


class NicGoBack:
    """The queue pairs of one NIC.

    Each is told once for a switch. One that sends again takes no NAK until something is acknowledged: `rdma_rxe` ignores
    it, but starts the timer anew. So none is told twice of one PSN, nor at all where its peer has told it.
    """

    def __init__(self, order: GoBackOrder, counters: Counter[str]) -> None:
        self._order, self._counters = order, counters
        self._maps = Maps(tree.here(order.ifname))
        self._queue_pairs = Unacknowledged(self._maps)
        self._sender = GoBackSender(order.ifname, self._maps)
        self._settled: dict[Name, _Settled] = {}
        self._acknowledged_after: dict[int, int] = {}
        """By dead path, the switch (its count of flaps) after which all was acknowledged again."""

    def __len__(self) -> int:
        return len(self._queue_pairs)

    def follow(self, connected: list[QueuePair]) -> None:
        """Look after these queue pairs, all that are connected now."""
        self._queue_pairs.follow(connected)
        self._settled = {name: last for name, last in self._settled.items() if name in self._queue_pairs}

    def act(self) -> None:
        """Tell those that wait, and acknowledge again, path by path until the dataplane says that the path is in use."""
        in_use: set[int] = set()
        self._go_back(in_use)
        self._acknowledge(in_use)

    def _go_back(self, in_use: set[int]) -> None:
        for one in self._queue_pairs.waiting():
            if self._is_settled(one) or one.path in in_use:
                continue
            here = self._order.address(one.peer.version)
            if one.psn is None or here is None or one.retrying:
                self._leave_alone(one)
            elif self._say(nak(one.peer, here, one.lqpn, one.psn), one.peer, one.rqpn):
                self._counters["go_backs_sent"] += 1
                self._settle(one)
            else:
                in_use.add(one.path)

    def _acknowledge(self, in_use: set[int]) -> None:
        """All of a path once after each switch; before it a queue pair itself may acknowledge over the dead path."""
        paths = self._maps.paths
        down = {
            path: int(paths["flaps"][path])
            for path in np.flatnonzero(paths["state"] == PathState.DOWN).tolist()
        }
        settled = [path for path, flaps in down.items() if self._acknowledged_after.get(path) == flaps]
        for one in self._queue_pairs.acknowledging(settled):
            here = self._order.address(one.peer.version)
            if here is None or one.path in in_use:
                continue
            if self._say(acknowledgement(here, one.peer, one.rqpn, one.aeth, one.psn), one.peer):
                self._counters["go_back_acks_sent"] += 1
            else:
                in_use.add(one.path)
        self._acknowledged_after = {path: flaps for path, flaps in down.items() if path not in in_use}

    def close(self) -> None:
        """Close what is open."""
        self._sender.close()
        self._maps.close()

    def _is_settled(self, one: Waiting) -> bool:
        last = self._settled.get(one.name)
        if last is None:
            return False
        same_switch = self._is_down(one) and (last.path, last.flaps) == (one.path, self._flaps(one))
        return same_switch or last.psn == one.psn

    def _settle(self, one: Waiting) -> None:
        """A switch that the telling itself has brought about is the one that was told of."""
        self._settled[one.name] = _Settled(one.path, self._flaps(one), one.psn)

    def _leave_alone(self, one: Waiting) -> None:
        """One that cannot be told, once its path is given up."""
        if self._is_down(one):
            self._counters["go_backs_retrying" if one.retrying else "go_backs_unknown"] += 1
            self._settle(one)

    def _say(self, packet: bytes, peer: Address, priority: int = 0) -> bool:
        """Send it; False where the path is in use, or the kernel does not take the packet."""
        try:
            return self._sender.send(packet, peer, priority)
        except OSError:
            self._counters["go_backs_unsent"] += 1
            return False

    def _is_down(self, one: Waiting) -> bool:
        return bool(self._maps.paths["state"][one.path] == PathState.DOWN)

    def _flaps(self, one: Waiting) -> int:
        return int(self._maps.paths["flaps"][one.path])


class GoBackHost:
    """The queue pairs of all NICs of this host."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._nics: dict[GoBackOrder, NicGoBack] = {}
        self._orders: list[GoBackOrder] = []
        self._devices = ProvedDevices()

    def follow(self, orders: list[GoBackOrder]) -> None:
        """Have the NICs be as ordered."""
        for order in set(self._nics) - set(orders):
            self._nics.pop(order).close()
        self._orders = orders

    def look(self, now_ns: int) -> None:
        """See which queue pairs there are; a NIC whose maps cannot be opened is tried again at the next call."""
        try:
            connected = self._devices.queue_pairs(now_ns)
        except RdmaError:
            self.counters["go_back_failed"] += 1
            return
        for order in self._orders:
            try:
                nic = self._nics.get(order) or NicGoBack(order, self.counters)
            except OSError:
                self.counters["go_back_failed"] += 1
                continue
            self._nics[order] = nic
            nic.follow(connected.get(order.ifname, []))

    def is_needed(self) -> bool:
        """Whether there is any queue pair to look after."""
        return any(len(nic) for nic in self._nics.values())

    def act(self) -> None:
        """Tell those that wait."""
        for nic in self._nics.values():
            nic.act()


def is_proved_device_there() -> bool:
    """Whether this host has a device whose queue pairs can be told."""
    try:
        return not PROVED.isdisjoint(netlink.drivers().values())
    except RdmaError:
        return False


class ProvedDevices:
    """The devices whose queue pairs can be told, and the network interfaces of their ports.

    They are read anew when a device shows that was not there, and now and then: it takes much longer than to list
    the queue pairs.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._netdevs: dict[tuple[str, int | None], str | None] = {}
        self._read_ns = 0

    def queue_pairs(self, now_ns: int) -> dict[str, list[QueuePair]]:
        """Their connected RC queue pairs, by the network interface of their port.

        Raises:
            RdmaError: this kernel has no RDMA, or it refused.
        """
        listed = netlink.queue_pairs()
        devices = {qp.device for qp in listed}
        if now_ns - self._read_ns > DEVICES_NS or not devices <= self._seen:
            self._netdevs, self._seen, self._read_ns = _proved_netdevs(), devices, now_ns
        found: dict[str, list[QueuePair]] = {}
        for qp in listed:
            netdev = self._netdevs.get((qp.device, qp.port))
            if netdev is not None and qp.type == "RC" and qp.state in ("RTR", "RTS") and qp.rqpn is not None:
                found.setdefault(netdev, []).append(qp)
        return found


def _proved_netdevs() -> dict[tuple[str, int | None], str | None]:
    """The network interface of each port of proved devices, by device and number."""
    drivers = netlink.drivers()
    return {
        (port.device, port.port): port.netdev for port in sysfs.ports() if drivers.get(port.device) in PROVED
    }


def run(interval_ns: int, orders: Orders[list[GoBackOrder]], host: GoBackHost) -> None:
    """Look after queue pairs until the agent is gone."""
    look_ns = say_ns = 0
    with suppress(EOFError, BrokenPipeError):
        while True:
            wanted = orders.take()
            if wanted is not None:
                host.follow(wanted)
                look_ns = 0
            now_ns = time.monotonic_ns()
            if now_ns >= look_ns:
                host.look(now_ns)
                look_ns = now_ns + max(LOOK_NS, LOOK_SHARE * (time.monotonic_ns() - now_ns))
            if now_ns >= say_ns:
                os.write(sys.stdout.fileno(), msgspec.json.encode(host.counters) + b"\n")
                say_ns = now_ns + SAY_NS
            host.act()
            time.sleep(interval_ns / 1e9 if host.is_needed() else IDLE_S)


def main() -> None:
    """Run with the interval given on the command line."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    run(round(float(sys.argv[1]) * 1e6), Orders(sys.stdin.fileno(), list[GoBackOrder]), GoBackHost())


if __name__ == "__main__":
    main()
