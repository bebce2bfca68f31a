"""Address handles of UD queue pairs, one per destination and source port."""

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Any

from cwdp.rdma import verbs
from cwdp.rdma.sport import sport_to_flow_label

MAX_HANDLES = 4096
RENEW_AFTER_NS = 30_000_000_000
TRAFFIC_CLASS = 26 << 2  # AF31, as the probes of the kernel
HOP_LIMIT = 64


class AddressHandles:
    """Made when first used, and kept, MAX_HANDLES of them.

    To make one, the kernel resolves the MAC address of the next hop, and waits up to 1 s for a neighbour that
    does not answer. So a destination that is suspected, or has no handle, is resolved anew every
    RENEW_AFTER_NS and not for every probe.

    Args:
        pd: the pyverbs protection domain.
        port: the device's port.
        gid_index: the GID to send from.
        clock: ns.
    """

    def __init__(self, pd: Any, port: int, gid_index: int, clock: Callable[[], int]) -> None:
        self._pd = pd
        self._port = port
        self._gid_index = gid_index
        self._clock = clock
        self._addr = verbs.load("addr")
        self._failed = verbs.failure()
        self._handles: OrderedDict[tuple[bytes, int], Any] = OrderedDict()
        self._renewed_ns: dict[bytes, int] = {}

    def get(self, gid: bytes, sport: int) -> Any | None:
        """The handle for a destination and source port; None where its next hop does not answer."""
        key = (gid, sport)
        if key in self._handles:
            self._handles.move_to_end(key)
            return self._handles[key]
        handle = self._handles[key] = self._make(gid, sport)
        if len(self._handles) > MAX_HANDLES:
            self._close(self._handles.popitem(last=False)[1])
        return handle

    def suspect(self, gid: bytes) -> None:
        """Resolve a destination anew, unless that was done of late."""
        now_ns = self._clock()
        if now_ns - self._renewed_ns.get(gid, -RENEW_AFTER_NS) < RENEW_AFTER_NS:
            return
        self._renewed_ns[gid] = now_ns
        for key in [key for key in self._handles if key[0] == gid]:
            self._close(self._handles.pop(key))

    def close(self) -> None:
        """Give all handles back."""
        while self._handles:
            self._close(self._handles.popitem()[1])

    def _make(self, gid: bytes, sport: int) -> Any | None:
        route = self._addr.GlobalRoute(
            dgid=self._addr.GID(IPv6Address(gid).exploded),
            flow_label=sport_to_flow_label(sport),
            sgid_index=self._gid_index,
            hop_limit=HOP_LIMIT,
            traffic_class=TRAFFIC_CLASS,
        )
        attributes = self._addr.AHAttr(gr=route, is_global=1, port_num=self._port)
        try:
            return self._addr.AH(self._pd, attr=attributes)
        except self._failed:
            return None

    @staticmethod
    def _close(handle: Any | None) -> None:
        if handle is not None:
            handle.close()
