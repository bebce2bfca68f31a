"""What is steered on this host now, for a manager that does not know it: a new one, or one that others overruled."""

import math
from collections.abc import Iterable, Iterator, Mapping

from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.steering.steering import QpKey, Steer, Steering
from cwdp.shared.bus.messages import SteerQp, SteerReport

LISTED_AT_ONCE = 4096
"""So many of each kind in one message, which then stays below 1 MiB."""


def steer_reports(
    host: str, number: int, nics: Mapping[str, Maps], others: Iterable[SteerQp] = ()
) -> Iterator[SteerReport]:
    """The steering in the maps of some interfaces, by name, in as many messages as that takes; `number` is theirs.

    `others` are of interfaces without maps, as the manager wanted it.
    """
    managed: list[SteerQp] = list(others)
    by_hand: list[SteerQp] = []
    for message, steer in _messages(nics):
        (managed if steer.managed else by_hand).append(message)
    parts = max(1, math.ceil(max(len(managed), len(by_hand)) / LISTED_AT_ONCE))
    for part in range(parts):
        listed = slice(part * LISTED_AT_ONCE, (part + 1) * LISTED_AT_ONCE)
        yield SteerReport(
            host=host,
            managed=managed[listed],
            by_hand=by_hand[listed],
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
