"""Whether queue pairs of a NIC send: no flows are begun beside them unasked."""

import asyncio
import time
from collections.abc import Collection

import numpy as np

from cwdp.agent.config import AgentConfig
from cwdp.agent.verbs.sources import Sent, sent
from cwdp.dataplane.abi import Direction
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.dataplane.telemetry import FREE_OR_BUSY
from cwdp.rdma.port import PortChoice, find_port
from cwdp.shared.addresses import Address, bytes_address

LATELY_NS = 2_000_000_000
SETTLED_NS = 500_000_000
"""So long after flows have ended may their queue pairs still have been seen: the dataplane notes it every 320 ms at most."""

LOOKED_S = 0.25
MOST_OTHER_BYTES = 1_000_000
"""In `LOOKED_S`, of a NIC whose device sends: 32 Mbit/s, which probes and connections without RDMA stay below."""


class Traffic:
    """What queue pairs of this host's NICs have sent of late.

    Args:
        config: the agent's.
    """

    def __init__(self, config: AgentConfig) -> None:
        self._devices = config.ud_nics
        self._own: dict[str, tuple[int, frozenset[Address]]] = {}

    def flows_ended(self, ifname: str, peers: Collection[Address]) -> None:
        """Not count what was sent to these addresses up to now."""
        self._own[ifname] = time.monotonic_ns(), frozenset(peers)

    async def sends(self, ifname: str) -> bool:
        """Whether queue pairs of a NIC send.

        Raises:
            CwdpError: the NIC's RDMA device is not to be found.
            OSError: the NIC has no dataplane.
        """
        if ifname in self._devices:
            return await self._device_sends(ifname)
        return await asyncio.to_thread(self._sends, ifname)

    def _sends(self, ifname: str) -> bool:
        now_ns = time.monotonic_ns()
        ended_ns, peers = self._own.get(ifname, (0, frozenset()))
        with Maps(tree.here(ifname)) as maps:
            seen = _seen(maps)
        return any(
            now_ns - at_ns < LATELY_NS and not (address in peers and at_ns < ended_ns + SETTLED_NS)
            for address, at_ns in seen
        )

    async def _device_sends(self, ifname: str) -> bool:
        """By what the device counts, where no dataplane sees its packets."""
        known = self._devices[ifname]
        choice = PortChoice(known.rdma_device, known.rdma_port, known.gid_index)
        port = await asyncio.to_thread(find_port, ifname, choice)
        before = sent(ifname, port.device, port.port)
        await asyncio.sleep(LOOKED_S)
        return _is_much(before, sent(ifname, port.device, port.port))


def _seen(maps: Maps) -> list[tuple[Address, int]]:
    """Whom queue pairs have sent data to, not acknowledgements alone, and when they were seen last."""
    records = maps.qps[Direction.EGRESS]
    records = records[records["tag"] > FREE_OR_BUSY]
    answers = records["acks"] + records["cnps"] + records["naks"].sum(axis=1, dtype=np.uint64)
    records = records[records["packets"] > answers]
    packed = np.ascontiguousarray(records["key"]["addr"]).tobytes()
    addresses = [bytes_address(packed[at : at + 16]) for at in range(0, len(packed), 16)]
    return list(zip(addresses, records["last_seen_ns"].tolist(), strict=True))


def _is_much(before: Sent | None, after: Sent | None) -> bool:
    return before is not None and after is not None and after.bytes - before.bytes > MOST_OTHER_BYTES
