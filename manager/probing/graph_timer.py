"""When to rebuild the probe graph: soon after the members changed, but not at each single arrival. Pure."""

from collections.abc import Sequence

from cwdp.shared.bus.messages import UdAddress
from manager.probing.schedule import Member

FIRST_AFTER_S = 1.2
TAKE_UP_AFTER_S = 6.0
QUIET_S = 0.4
LATEST_S = 3.0

_Signature = tuple[int, bool, list[tuple[str, str, str | None, str | None, UdAddress | None]]]
_NOTHING: _Signature = (0, False, [])


class GraphTimer:
    """Watches the members. Times are seconds of the manager's monotonic clock."""

    def __init__(self) -> None:
        self._built: _Signature | None = None
        self._seen = _NOTHING
        self._changed_s = 0.0
        self._first_change_s: float | None = None

    def due(
        self,
        members: Sequence[Member],
        now_s: float,
        *,
        taken_up: bool,
        complete: bool = False,
        elsewhere: int = 0,
        without_nics: bool = False,
    ) -> bool:
        """Whether to build the graph over `members` now; if so it counts as built.

        The first graph waits until the hosts that there are have had time to say so; longer while some
        that an earlier manager has directed are missing (`taken_up`), as they keep probing meanwhile. Where all that
        it had probed are there (`complete`) no more are waited for.
        `elsewhere` is another number where hosts of other pods are others. `without_nics`: there are hosts that probe nothing and
        are to be told something all the same.
        """
        named = [(host, nic.ifname, nic.ipv4, nic.ipv6, nic.ud) for host, nic in members]
        signature = elsewhere if members else 0, without_nics, named
        if signature == (self._built or _NOTHING):
            self._first_change_s = None
            self._seen = signature
            return False
        if self._first_change_s is None:
            self._first_change_s = now_s
        if signature != self._seen:
            self._seen, self._changed_s = signature, now_s
        if not self._ripe(now_s, now_s - self._first_change_s, taken_up=taken_up, complete=complete):
            return False
        self._built, self._first_change_s = signature, None
        return True

    def _ripe(self, now_s: float, waited_s: float, *, taken_up: bool, complete: bool) -> bool:
        if self._built is None and waited_s < (TAKE_UP_AFTER_S if taken_up else FIRST_AFTER_S):
            return False
        if self._built is None and complete:
            return True
        return now_s - self._changed_s >= QUIET_S or waited_s >= LATEST_S
