"""What is steered on this host now, for a manager that does not know it: a new one, or one that others overruled."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping

from cwdp.agent.liveness.delays import path_delays
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.pathtable import PathKey
from cwdp.dataplane.steering.steering import QpKey, Steer, Steering
from cwdp.dataplane.steering.tcp import SteeredConnection, TcpSteering
from cwdp.shared.bus.messages import SteerQp, SteerReport
from cwdp.shared.tcp import PulseDelay, SteeredTcp, SteerTcp

LISTED_AT_ONCE, TCP_AT_ONCE = 4096, 1024
"""So many queue pairs of each kind, and TCP connections, in one message, which then stays below 1 MiB."""


def steer_reports(
    host: str, number: int, nics: Mapping[str, Maps], now_local_ns: int, others: Iterable[SteerQp] = ()
) -> Iterator[SteerReport]:
    """The steering in the maps of some interfaces, by name, in as many messages as that takes; `number` is theirs.

    `now_local_ns` is local time; `others` are of interfaces without maps, as the manager wanted it.
    """
    managed: list[SteerQp] = list(others)
    by_hand: list[SteerQp] = []
    for message, steer in _messages(nics):
        (managed if steer.managed else by_hand).append(message)
    tcp = list(_connections(nics, time.monotonic_ns(), now_local_ns))
    most = max(len(managed), len(by_hand)) / LISTED_AT_ONCE, len(tcp) / TCP_AT_ONCE
    parts = max(1, math.ceil(max(most)))
    for part in range(parts):
        listed = slice(part * LISTED_AT_ONCE, (part + 1) * LISTED_AT_ONCE)
        yield SteerReport(
            host=host,
            managed=managed[listed],
            by_hand=by_hand[listed],
            tcp=tcp[part * TCP_AT_ONCE : (part + 1) * TCP_AT_ONCE],
            number=number,
            part=part,
            parts=parts,
        )


def _messages(nics: Mapping[str, Maps]) -> Iterator[tuple[SteerQp, Steer]]:
    for ifname, maps in nics.items():
        for key, steer in Steering(maps).all().items():
            yield _message(ifname, key, steer), steer


def _message(ifname: str, key: QpKey, steer: Steer) -> SteerQp:
    return SteerQp(
        nic=ifname,
        dst_addr=str(key.dst),
        qpn=key.qpn,
        sport=steer.sport,
        backup_sport=steer.backup_sport,
        flow_label=steer.flow_label,
        override=steer.override,
    )


def _connections(nics: Mapping[str, Maps], now_ns: int, now_local_ns: int) -> Iterator[SteeredTcp]:
    for ifname, maps in nics.items():
        listed = TcpSteering(maps).listed(now_ns)
        wanted = {key for one in listed for key in one.steer.path_keys(one.connection)}
        delays = path_delays(maps.slots, maps.paths, wanted, now_local_ns)
        for one in listed:
            yield _connection(ifname, one, delays)


def _connection(ifname: str, one: SteeredConnection, delays: Mapping[PathKey, PulseDelay]) -> SteeredTcp:
    connection, steer = one.connection, one.steer
    of_paths = [delays.get(key) for key in steer.path_keys(connection)]
    return SteeredTcp(
        steer=SteerTcp(
            nic=ifname,
            local_addr=str(connection.local),
            remote_addr=str(connection.remote),
            local_port=connection.local_port,
            remote_port=connection.remote_port,
            sport=steer.sport,
            backup_sport=steer.backup_sport,
            ports=steer.ports,
            flow_label=steer.flow_label,
            override=steer.override,
        ),
        managed=steer.managed,
        confirmed=one.confirmed,
        used_sport=one.used_sport,
        failed_over=steer.backup_sport is not None and one.used_sport == steer.backup_sport,
        buffers=one.buffers,
        bytes=one.nbytes,
        delay=of_paths[0],
        backup_delay=of_paths[1] if steer.backup_sport is not None else None,
    )
