"""Keeps the TCP steering of this host's NICs as the manager wants it; what was set by hand stays."""

import time

from cwdp.agent.steering.wishes import translated
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.routes import unrouted
from cwdp.dataplane.steering.steering import parse_address
from cwdp.dataplane.steering.tcp import TcpConnection, TcpSteer, TcpSteering
from cwdp.errors import CwdpError, SteeringError
from cwdp.shared.tcp import SteerTcp


def apply(ifname: str, maps: Maps, wanted: list[SteerTcp]) -> list[CwdpError]:
    """Make the TCP steering of a NIC what is wanted, and forget what other hosts have not announced for long.

    Callers hold `tree.locked()`.

    Returns:
        Why some of it could not be.

    Raises:
        OSError: its maps cannot be changed.
    """
    steers, refused = translate(wanted)
    steering = TcpSteering(maps)
    new = {connection.remote for connection in steers.keys() - steering.all().keys()}
    elsewhere = unrouted(ifname, new)
    refused += steering.reconcile(
        {one: steer for one, steer in steers.items() if one.remote not in elsewhere}
    )
    steering.forget_silent(time.monotonic_ns())
    try:
        steering.set_timers()
    except OSError as error:
        refused.append(
            SteeringError(
                f"timers of TCP sockets cannot be set: {error.strerror}", "report this with `uname -r`"
            )
        )
    return refused + list(elsewhere.values())


def translate(wanted: list[SteerTcp]) -> tuple[dict[TcpConnection, TcpSteer], list[CwdpError]]:
    """Steering as the dataplane has it, without those that are impossible or stand twice, and why not."""
    return translated(wanted, _read, str)


def _read(one: SteerTcp) -> tuple[TcpConnection, TcpSteer]:
    """One of them; raises SteeringError where it is impossible."""
    connection = TcpConnection(
        parse_address(one.local_addr), parse_address(one.remote_addr), one.local_port, one.remote_port
    )
    if connection.local.version == 4 and not one.ports:
        raise SteeringError(f"{connection} has no flow label", "have its ports change")
    return connection, TcpSteer(
        one.sport, one.backup_sport, one.ports, one.flow_label, managed=True, override=one.override
    )
