"""Connections by the names under which `cwdp tcp` shows them. No I/O."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from cwdp.errors import ConfigError
from cwdp.shared.addresses import bytes_address
from cwdp.shared.bus.messages import nic_id
from manager.tcp.connections import ConnectionStore, NicName, NicTable

EXAMPLE = "h1/nic0:41556 - h3/nic0:5201"

_NAME = re.compile(r"(\S+):(\d{1,5}) - (\S+):(\d{1,5})")


class NamedEnd(NamedTuple):
    """One end of a connection: a NIC as HOST/IFNAME, or an address where nobody of the fleet has it; and the port."""

    where: str
    port: int

    def __str__(self) -> str:
        return f"{self.where}:{self.port}"


class Name(NamedTuple):
    """A connection, by the end that is named first."""

    near: NamedEnd
    far: NamedEnd

    def __str__(self) -> str:
        return f"{self.near} - {self.far}"

    def fits(self, near: tuple[str, str, int], far: tuple[str, str, int]) -> bool:
        """Whether it is of a connection between these ends, each a NIC, an address and a port, the first of them named first."""
        return _fits(self.near, near) and _fits(self.far, far)


class Found(NamedTuple):
    """A connection that agents tell of.

    Attributes:
        near_addr, far_addr: the addresses of both ends.
        service: whose it is.
        by_near, by_far: whether each end tells of it.
    """

    near_addr: str
    far_addr: str
    service: str
    by_near: bool
    by_far: bool


def read_name(text: str) -> Name:
    """A name as people write it.

    Raises:
        ConfigError: it is none.
    """
    match = _NAME.fullmatch(" ".join(text.split()))
    ports = [] if match is None else [int(match[2]), int(match[4])]
    if match is None or not all(0 < port <= 0xFFFF for port in ports):
        raise ConfigError(f"{text!r} names no TCP connection", f"name it as `cwdp tcp` does: {EXAMPLE}")
    return Name(NamedEnd(match[1], ports[0]), NamedEnd(match[3], ports[1]))


def find(store: ConnectionStore, owners: Mapping[str, str], name: Name) -> Found:
    """The connection of a name, as either end tells of it.

    Args:
        store: what agents tell.
        owners: the NIC that has each address.
        name: of the connection.

    Raises:
        ConfigError: nobody tells of it, or the name is of several.
    """
    found: dict[tuple[str, str], Found] = {}
    for local, remote, service in _told(store, owners, name):
        found[local, remote] = Found(local, remote, service, by_near=True, by_far=False)
    for remote, local, service in _told(store, owners, Name(name.far, name.near)):
        before = found.get((local, remote))
        found[local, remote] = Found(local, remote, service, by_near=before is not None, by_far=True)
    if not found:
        raise ConfigError(
            f"no agent tells of the TCP connection {name}",
            "`cwdp tcp` lists those of the services that agents' configurations name; see docs/tcp.md",
        )
    if len(found) > 1:
        ways = " or ".join(f"{name.near.where} - {far}:{name.far.port}" for _, far in sorted(found))
        raise ConfigError(
            f"there are {len(found)} TCP connections {name}", f"give the address of the far end: {ways}"
        )
    (only,) = found.values()
    return only


def _told(store: ConnectionStore, owners: Mapping[str, str], name: Name) -> Iterator[tuple[str, str, str]]:
    """Local address, remote address and service of the rows that the end named first tells of."""
    nic, table = _table(store, owners, name.near.where)
    if table is None:
        return
    ports = table.rows["local_port"] == name.near.port, table.rows["remote_port"] == name.far.port
    for i in np.flatnonzero(ports[0] & ports[1]).tolist():
        local, remote = (
            str(bytes_address(table.rows[f"{end}_addr"][i].tobytes())) for end in ("local", "remote")
        )
        here, there = (nic_id(*nic), local, name.near.port), (owners.get(remote, ""), remote, name.far.port)
        if name.fits(here, there):
            yield local, remote, table.service(i)


def _table(store: ConnectionStore, owners: Mapping[str, str], where: str) -> tuple[NicName, NicTable | None]:
    """What the NIC tells of that a name means, by its own name or by an address."""
    host, _, ifname = owners.get(where, where).rpartition("/")
    return (host, ifname), store.tables.get((host, ifname))


def _fits(named: NamedEnd, end: tuple[str, str, int]) -> bool:
    nic, address, port = end
    return named.port == port and named.where in (nic, address)
