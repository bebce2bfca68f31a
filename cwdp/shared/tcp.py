"""What the manager wants of TCP connections."""

from typing import Annotated

from msgspec import Meta, Struct

Port = Annotated[int, Meta(ge=1, le=65_535)]


class SteerTcp(Struct, frozen=True, kw_only=True):
    """Where the segments of one TCP connection are to go that leave by a NIC of this host.

    The connection is named as this host has it. `sport` and `backup_sport` select its path and the one to take while that is
    dead, among those that TCP probes know. Its segments bear the ports of its path where `ports` is set, as soon as the far end
    restores them, and over IPv6 its flow label where `flow_label` is. `override` is as `SteerQp` has it.
    """

    nic: str
    local_addr: str
    remote_addr: str
    local_port: Port
    remote_port: Port
    sport: int
    backup_sport: int | None = None
    ports: bool = True
    flow_label: bool = False
    override: bool = False


TcpKey = tuple[str, str, str, int, int]


def tcp_key(one: SteerTcp) -> TcpKey:
    """NIC and connection."""
    return one.nic, one.local_addr, one.remote_addr, one.local_port, one.remote_port
