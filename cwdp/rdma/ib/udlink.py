"""Carries probes between UD queue pairs of two ports of InfiniBand, path by path; tried with a fake provider only.

A path is the LID that is sent to. Messages have no GRH: the 40 bytes where it would be are void at receive (IBTA 11.4.1.2), and
who sent a message is told by its source LID.
"""

import time
from collections.abc import Callable

from cwdp.errors import ConfigError
from cwdp.rdma import sysfs
from cwdp.rdma.gid import gid_text
from cwdp.rdma.ib.lid import LID_MAX, Lids, lid_gid
from cwdp.rdma.udlink import UdLink
from cwdp.rdma.udprobe import Link
from cwdp.rdma.udqueues import Arrived
from cwdp.shared.bus.messages import UdAddress

INFINIBAND = "InfiniBand"
MOST_PATHS = 64
FULL_MEMBER = 0x8000
DEFAULT_PKEY = 0xFFFF


class LidLink(UdLink):
    """Messages over one port of InfiniBand, from its first LID to any LID of other ports.

    Args:
        device: its name, such as mlx5_0.
        port: its number, from 1.
        clock: ns; read when a message is seen.

    Raises:
        ConfigError: the port has no LID, or is in no partition in which it could be answered.
        RdmaError: pyverbs is missing, or the device refuses.
    """

    def __init__(self, device: str, port: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._lids = _lids(device, port)
        super().__init__(device, port, 0, None, clock)

    @property
    def address(self) -> UdAddress:
        """Where this end can be reached: its first LID, in the form of a GID, and all of them, MOST_PATHS at most."""
        lid, lmc = self._lids
        lids = range(lid, lid + min(1 << lmc, MOST_PATHS))
        return UdAddress(gid_text(lid_gid(lid)), self._receiver.qpn, tuple(lids))

    def _own_gid(self) -> bytes:
        """The subnet manager may give others; an LMC of another number is another address, too."""
        now = _lids(self._device, self._port)
        return lid_gid(now[0]) if now[1] == self._lids[1] else b""

    def _pkey_index(self) -> int:
        """The default partition's where this port is a full member of it, else that of the first that it is of."""
        pkeys = sysfs.pkeys(self._device, self._port)
        full = [index for index, pkey in pkeys.items() if pkey & FULL_MEMBER]
        if not full:
            raise ConfigError(
                f"{self._device} port {self._port} is a full member of no partition",
                "limited members cannot answer each other; the subnet manager decides about that",
            )
        return next((index for index in full if pkeys[index] == DEFAULT_PKEY), full[0])

    def _source(self, arrived: Arrived) -> bytes | None:
        return lid_gid(arrived.slid) if 0 < arrived.slid <= LID_MAX else None


def open_link(
    device: str,
    port: int,
    gid_index: int,
    driver: str | None,
    clock: Callable[[], int] = time.monotonic_ns,
) -> Link:
    """The queue pairs on a port, whatever its link layer is; see `UdLink`. On InfiniBand neither GID nor driver make a difference.

    Raises:
        ConfigError: there is no such GID or LID.
        RdmaError: pyverbs is missing, or the device refuses.
    """
    if sysfs.link_layer(device, port) == INFINIBAND:
        return LidLink(device, port, clock)
    return UdLink(device, port, gid_index, driver, clock)


def _lids(device: str, port: int) -> Lids:
    found = sysfs.port_lids(device, port)
    if found is None:
        raise ConfigError(
            f"{device} port {port} has no LID",
            "a subnet manager gives it one; `ibstat` shows the port's state",
        )
    return found
