"""What is steered on this host now, for a manager that does not know it: a new one, or one that others overruled."""

from collections.abc import Iterator, Mapping

from cwdp.dataplane.maps import Maps
from cwdp.dataplane.steering import QpKey, Steer, Steering
from cwdp.shared.messages import SteerQp, SteerReport

MOST_LISTED = 4096
"""So many at most of each kind, so that the message stays below 1 MiB."""


def steer_report(host: str, nics: Mapping[str, Maps]) -> SteerReport:
    """The steering in the maps of some interfaces, by name."""
    managed: list[SteerQp] = []
    by_hand: list[SteerQp] = []
    for message, steer in _messages(nics):
        (managed if steer.managed else by_hand).append(message)
    return SteerReport(
        host=host,
        managed=managed[:MOST_LISTED],
        by_hand=by_hand[:MOST_LISTED],
        unlisted=max(0, len(managed) - MOST_LISTED) + max(0, len(by_hand) - MOST_LISTED),
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
    )
