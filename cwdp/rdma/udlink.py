"""Carries probes between UD queue pairs of one port, by pyverbs."""

import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cwdp.errors import ConfigError, RdmaError
from cwdp.rdma import sysfs, verbs
from cwdp.rdma.gid import gid_bytes, gid_text
from cwdp.rdma.handles import AddressHandles
from cwdp.rdma.port import ROCE_V2
from cwdp.rdma.sport import rxe_ud_sport
from cwdp.rdma.udprobe import Received
from cwdp.rdma.udqueues import GRH_BYTES, Arrived, QueuePort, ReceiveQueue, SendQueues
from cwdp.shared.bus.messages import UdAddress

RXE_QUEUE_PAIRS = 16
EVENT_FILE = "anon_inode:[infinibandevent]"
IPV4_AT = 20  # where an IPv4 header lies in the GRH (IBTA annex A17.4.5.2)


class UdLink:
    """Messages over one port of one RDMA device, from one of its RoCE v2 GIDs.

    Most devices derive the source port from the flow label, so one queue pair sends from any. Soft-RoCE does
    not, for UD; there each of RXE_QUEUE_PAIRS queue pairs has a port of its own, which `address.sports` names.

    Args:
        device: its name, such as mlx5_0.
        port: its number, from 1.
        gid_index: the GID to send from, as `cwdp rdma gid` lists them.
        driver: the device's, as `netlink.drivers` tells; only `rxe` makes a difference.
        clock: ns; read when a message is seen.

    Raises:
        ConfigError: there is no such GID, or it is not of RoCE v2.
        RdmaError: pyverbs is missing, or the device refuses.
    """

    def __init__(
        self,
        device: str,
        port: int,
        gid_index: int,
        driver: str | None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._device, self._port, self._gid_index = device, port, gid_index
        self._gid = self._own_gid()
        self._incarnation = sysfs.incarnation(device)
        self._failed = verbs.failure()
        self._clock = clock
        soft = driver == "rxe"
        self._context = verbs.open_device(device)
        try:
            pd = self._open(QueuePort(port, self._pkey_index()), RXE_QUEUE_PAIRS if soft else 1)
        except RdmaError:
            self._context.close()
            raise
        self._handles = AddressHandles(pd, port, gid_index, clock)
        self._events = select.poll()
        self._events.register(self._event_fd, select.POLLIN)
        self._by_sport = (
            {rxe_ud_sport(qpn): index for index, qpn in enumerate(self._sender.qpns)} if soft else {}
        )

    def _open(self, port: QueuePort, senders: int) -> Any:
        """Make the queue pairs; returns the protection domain that they share."""
        with self._translated():
            pd = verbs.load("pd").PD(self._context)
            self._channel, self._event_fd = _completion_channel(self._context)
            self._receiver = ReceiveQueue(self._context, pd, port, self._channel, self._clock)
            self._sender = SendQueues(self._context, pd, port, senders)
            self._receiver.cq.req_notify()
        return pd

    @property
    def address(self) -> UdAddress:
        """Where this end can be reached."""
        return UdAddress(gid_text(self._gid), self._receiver.qpn, tuple(sorted(self._by_sport)))

    def fileno(self) -> int:
        """Readable when there is something to poll."""
        return self._event_fd

    def check(self) -> None:
        """See whether the device is still the one that was opened, with the same GID.

        Queue pairs of one that has gone do not fail by themselves: they receive nothing any more.

        Raises:
            ConfigError: the GID is another one, or is gone.
            RdmaError: the device is another one, or is gone.
        """
        if sysfs.incarnation(self._device) != self._incarnation:
            raise RdmaError(f"the RDMA device {self._device} has gone", "it is opened when it is there again")
        if self._own_gid() != self._gid:
            raise ConfigError(
                f"GID {self._gid_index} of {self._device} is no longer {gid_text(self._gid)}",
                "its interface has another address now",
            )

    def close(self) -> None:
        """Give back queue pairs and memory; of a device that has gone, the kernel took them already."""
        for part in (self._handles, self._context):
            with suppress(self._failed):
                part.close()

    def suspect(self, gid: bytes) -> None:
        """Nothing came back from here: its next hop may have changed."""
        self._handles.suspect(gid)

    def send(self, gid: bytes, qpn: int, sport: int, data: bytes) -> bool:
        """Send a message from a source port; False where it could not be sent.

        Raises:
            RdmaError: the device failed.
        """
        index = self._by_sport.get(sport) if self._by_sport else 0
        handle = None if index is None else self._handles.get(gid, sport)
        if index is None or handle is None:
            return False
        with self._translated():
            return self._sender.send(index, handle, qpn, data)

    def poll(self) -> list[Received]:
        """What has arrived since the last call.

        Raises:
            RdmaError: the device failed.
        """
        with self._translated():
            while self._events.poll(0):
                self._channel.get_cq_event(self._receiver.cq)
                self._receiver.cq.ack_events(1)
                self._receiver.cq.req_notify()
            arrived = list(self._receiver.receive())
        found = []
        for one in arrived:
            source = self._source(one)
            if source is not None:
                found.append(Received(one.seen_ns, source, one.data[GRH_BYTES:]))
        return found

    def _own_gid(self) -> bytes:
        """Where this end is reached now; raises ConfigError where that is gone."""
        found = sysfs.gid(self._device, self._port, self._gid_index)
        if found is None or found.type != ROCE_V2:
            raise ConfigError(
                f"{self._device} port {self._port} has no RoCE v2 GID of index {self._gid_index}",
                f"`cwdp rdma gid --dev {self._device}` lists them",
            )
        return gid_bytes(found.gid)

    def _pkey_index(self) -> int:
        """RoCE has one partition (IBTA annex A17.7)."""
        return 0

    def _source(self, arrived: Arrived) -> bytes | None:
        """Who sent a message; None where it is not for this end."""
        addresses = read_grh(arrived.data[:GRH_BYTES])
        return addresses[0] if addresses is not None and addresses[1] == self._gid else None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what pyverbs raises into our own error."""
        try:
            yield
        except self._failed as error:
            raise RdmaError(
                f"{self._device} cannot carry probes: {verbs.reason(error)}",
                "`cwdp rdma port` shows its state; UD queue pairs take locked memory (`ulimit -l`)",
            ) from error


def read_grh(grh: bytes) -> tuple[bytes, bytes] | None:
    """Source and destination GID of a message; None where it came with neither IPv4 nor IPv6 header.

    RoCE v2 puts the IP header in the place of the GRH, an IPv4 header into its last 20 bytes.
    """
    if grh[0] >> 4 == 6:
        return grh[8:24], grh[24:40]
    ipv4 = grh[IPV4_AT:]
    if ipv4[0] >> 4 == 4:
        mapped = bytes(10) + b"\xff\xff"
        return mapped + ipv4[12:16], mapped + ipv4[16:20]
    return None


def _completion_channel(context: Any) -> tuple[Any, int]:
    """A completion channel and its file descriptor, which pyverbs does not tell: the one that came with it."""
    before = _event_files()
    channel = verbs.load("cq").CompChannel(context)
    (descriptor,) = _event_files() - before
    return channel, descriptor


def _event_files() -> set[int]:
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            if str(path.readlink()) == EVENT_FILE:
                found.add(int(path.name))
        except OSError:  # closed in between
            continue
    return found
