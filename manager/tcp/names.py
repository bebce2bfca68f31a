"""How connections are named where queue pairs are, by the planner and in the routes. No I/O.

Switches hash TCP unlike UDP, so a port that leads a queue pair over one spine may lead a connection over another. Paths of
connections are therefore of other destinations: an address behind `tcp:`. A connection's number is its two ports.
"""

from typing import NamedTuple

from cwdp.shared.tcp import TCP, SteerTcp
from manager.placement.flows import QpName


class Connection(NamedTuple):
    """A connection by the NIC that it leaves by; the local address is one of that NIC's."""

    host: str
    nic: str
    local_port: int
    remote_addr: str
    remote_port: int

    @property
    def name(self) -> QpName:
        """As the planner knows it."""
        return QpName(
            self.host, self.nic, tcp_address(self.remote_addr), self.local_port << 16 | self.remote_port
        )


def name_of(host: str, one: SteerTcp) -> QpName:
    """As the planner knows a connection that a host is told of, or tells of."""
    return Connection(host, one.nic, one.local_port, one.remote_addr, one.remote_port).name


def tcp_address(address: str) -> str:
    """What stands for an address in the names of TCP paths."""
    return TCP + address


def is_tcp(address: str) -> bool:
    """Whether an address in the name of a path is of TCP."""
    return address.startswith(TCP)


def plain_address(address: str) -> str:
    """The address that is meant, of TCP or not."""
    return address.removeprefix(TCP)


def connection_of(name: QpName) -> Connection | None:
    """The connection that a name of the planner's is of; None for a queue pair's."""
    if not is_tcp(name.dst_addr):
        return None
    return Connection(name.host, name.nic, name.qpn >> 16, plain_address(name.dst_addr), name.qpn & 0xFFFF)
