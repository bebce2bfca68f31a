"""When to rebuild the probe graph: soon after the members changed, but not at each single arrival. Pure."""

from collections.abc import Sequence

from cwdp.shared.bus.messages import UdAddress
from manager.probing.schedule import Member

FIRST_AFTER_S = 1.2
TAKE_UP_AFTER_S = 6.0
QUIET_S = 0.4
LATEST_S = 3.0

_Signature = list[tuple[str, str, str | None, str | None, UdAddress | None]]


class GraphTimer:
    """Watches the members. Times are seconds of the manager's monotonic clock."""

    def __init__(self) -> None:
        self._built: _Signature | None = None
        self._seen: _Signature = []
        self._changed_s = 0.0
        self._first_change_s: float | None = None

    def due(self, members: Sequence[Member], now_s: float, *, taken_up: bool) -> bool:
        """Whether to build the graph over `members` now; if so it counts as built.

        The first graph waits until the hosts that there are have had time to say so; longer while some
        that an earlier manager has directed are missing (`taken_up`), as they keep probing meanwhile.
        """
        signature = [(host, nic.ifname, nic.ipv4, nic.ipv6, nic.ud) for host, nic in members]
        if signature == (self._built or []):
            self._first_change_s = None
            self._seen = signature
            return False
        if self._first_change_s is None:
            self._first_change_s = now_s
        if signature != self._seen:
            self._seen, self._changed_s = signature, now_s
        if not self._ripe(now_s, now_s - self._first_change_s, taken_up=taken_up):
            return False
        self._built, self._first_change_s = signature, None
        return True

    def _ripe(self, now_s: float, waited_s: float, *, taken_up: bool) -> bool:
        if self._built is None and waited_s < (TAKE_UP_AFTER_S if taken_up else FIRST_AFTER_S):
            return False
        return now_s - self._changed_s >= QUIET_S or waited_s >= LATEST_S
