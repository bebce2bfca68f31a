"""Address handles of UD queue pairs, one per destination and source port, or on InfiniBand DLID."""

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Any

from cwdp.rdma import verbs
from cwdp.rdma.ib.lid import gid_lid
from cwdp.rdma.sport import sport_to_flow_label

MAX_HANDLES = 4096
RESOLVE_AGAIN_NS = 10_000_000_000
TRAFFIC_CLASS = 26 << 2  # AF31, as the probes of the kernel
HOP_LIMIT = 64


class AddressHandles:
    """Made when first used, and kept, MAX_HANDLES of them.

    To make one, the kernel resolves the MAC address of the next hop, and waits up to 1 s for a neighbour that
    does not answer. So a destination that failed or is suspected is resolved again every RESOLVE_AGAIN_NS, and
    not for every probe.

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
        self._failed_ns: dict[bytes, int] = {}
        self._suspected_ns: dict[bytes, int] = {}

    def get(self, gid: bytes, sport: int) -> Any | None:
        """The handle for a destination and source port; None where its next hop does not answer."""
        key = (gid, sport)
        if key in self._handles:
            self._handles.move_to_end(key)
        elif self._lately(self._failed_ns, gid):
            return None
        else:
            try:
                self._handles[key] = self._make(gid, sport)
            except self._failed:
                self._failed_ns[gid] = self._clock()
                return None
            if len(self._handles) > MAX_HANDLES:
                self._handles.popitem(last=False)[1].close()
        return self._handles[key]

    def suspect(self, gid: bytes) -> None:
        """Resolve a destination again when it is used next, unless that was done of late."""
        if self._lately(self._suspected_ns, gid):
            return
        self._suspected_ns[gid] = self._clock()
        for key in [key for key in self._handles if key[0] == gid]:
            self._handles.pop(key).close()

    def close(self) -> None:
        """Give all handles back."""
        while self._handles:
            self._handles.popitem()[1].close()

    def _lately(self, times_ns: dict[bytes, int], gid: bytes) -> bool:
        return gid in times_ns and self._clock() - times_ns[gid] < RESOLVE_AGAIN_NS

    def _make(self, gid: bytes, sport: int) -> Any:
        """Of an InfiniBand port the path is the LID that it is sent to, from this port's first."""
        if gid_lid(gid) is not None:
            return self._addr.AH(
                self._pd,
                attr=self._addr.AHAttr(dlid=sport, src_path_bits=0, is_global=0, port_num=self._port),
            )
        route = self._addr.GlobalRoute(
            dgid=self._addr.GID(IPv6Address(gid).exploded),
            flow_label=sport_to_flow_label(sport),
            sgid_index=self._gid_index,
            hop_limit=HOP_LIMIT,
            traffic_class=TRAFFIC_CLASS,
        )
        attributes = self._addr.AHAttr(gr=route, is_global=1, port_num=self._port)
        return self._addr.AH(self._pd, attr=attributes)
