"""What the manager wants of TCP connections."""

from typing import Annotated

from msgspec import Meta, Struct

TCP = "tcp:"
"""Stands before the address where a TCP connection is meant, in the names of paths and of what goes over them."""

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


Delay = Annotated[int, Meta(ge=-(2**62), le=2**62)]


class PulseDelay(Struct, frozen=True, kw_only=True):
    """One-way delays of pulses over a path in the last second: the least and the median of so many, and how wrong these can be."""

    pulses: Annotated[int, Meta(ge=1, le=2**32)]
    min_ns: Delay
    p50_ns: Delay
    bound_ns: Annotated[int, Meta(ge=0, le=2**32)]


class SteeredTcp(Struct, frozen=True, kw_only=True):
    """A TCP connection that is steered on a host, as it wants it and as it is.

    `managed` is set where the manager wanted it so once; otherwise it was set by hand. The far end has said of late that it
    restores its ports where it is `confirmed`. `used_sport` is of its last segment by a path, 0 before the first: it is
    `failed_over` where that is the backup's. `buffers` and `bytes` left by its paths; a buffer may be many segments. `delay` and
    `backup_delay` are of its path and of its backup, None where no pulse was answered of late between clocks that are synced.
    """

    steer: SteerTcp
    managed: bool
    confirmed: bool
    used_sport: Annotated[int, Meta(ge=0, le=65_535)] = 0
    failed_over: bool = False
    buffers: int = 0
    bytes: int = 0
    delay: PulseDelay | None = None
    backup_delay: PulseDelay | None = None
