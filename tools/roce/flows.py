"""A flow: one queue pair that sends RDMA WRITEs to another, and the lines that tell both ends of it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from cwdp.errors import ConfigError
from cwdp.rdma.sport import flow_label_to_sport

MTUS = (256, 512, 1024, 2048, 4096)
MAX_QPN = 2**24 - 2
DEFAULT_TIMEOUT_NS = 67_108_864
"""4.096 us * 2^14, the local acknowledgement timeout that verbs programs commonly set."""

_FIRST_QPN = 2  # 0 and 1 are reserved
_PSNS = 2**24
_DSCP_SHIFT = 2
_HEADER_BYTES = 80  # IPv6, UDP, BTH, RETH, ICRC


@dataclass(frozen=True)
class Endpoint:
    """An address of a host's NIC."""

    host: str
    address: IPv4Address | IPv6Address


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A queue pair at `source` that writes to one at `target`.

    Attributes:
        id: tells flows apart, the same at both ends.
        qpn: of the queue pair at the source; acknowledgements carry it.
        remote_qpn: of the queue pair at the target; data carries it.
        sport: UDP source port of the data.
        ack_sport: UDP source port of the acknowledgements.
        flow_label: of IPv6, 20 bits.
        mtu: payload of a full packet in bytes, one of `MTUS`.
        window: packets under way without acknowledgement.
        ack_every: an acknowledgement is asked for at every so many packets, and at the end of a message.
        retries: times without progress before the queue pair fails.
        message_bytes: length of a WRITE.
        total_bytes: sent in all, None for until the end of the run.
        rate_bps: of the Ethernet frames without FCS, None for as fast as it goes.
        dscp: of all packets, both ways.
        ecn: of the data; 2 is ECT(0), 3 is CE, as if a switch had marked it. Answers are ECT(0).
        udp_checksum: send UDP checksums, both ways; else they are zero.
    """

    id: int
    source: Endpoint
    target: Endpoint
    qpn: int
    remote_qpn: int
    sport: int
    ack_sport: int
    first_psn: int = 0
    flow_label: int = 0
    mtu: int = 4096
    window: int = 64
    ack_every: int = 16
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    retries: int = 7
    message_bytes: int = 256 * 1024
    total_bytes: int | None = None
    rate_bps: int | None = None
    dscp: int = 26
    ecn: int = 2
    udp_checksum: bool = False

    def __post_init__(self) -> None:
        if self.source.address.version != self.target.address.version:
            raise ConfigError(
                f"flow {self.id} goes from {self.source.address} to {self.target.address}",
                "Give both ends addresses of one IP version.",
            )
        if self.mtu not in MTUS:
            raise ConfigError(f"an MTU of {self.mtu} bytes", f"Give one of {', '.join(map(str, MTUS))}.")
        if self.message_bytes < 1:
            raise ConfigError(f"messages of {self.message_bytes} bytes", "Give 1 byte or more.")

    def send_line(self) -> str:
        """The line of the plan for the host of the source."""
        settings = self._common(self.source, self.target, self.ecn) | {
            "sport": self.sport,
            "qpn": self.qpn,
            "remote_qpn": self.remote_qpn,
            "mtu": self.mtu,
            "window": self.window,
            "ack_every": self.ack_every,
            "timeout_ns": self.timeout_ns,
            "retries": self.retries,
            "message_bytes": self.message_bytes,
            "total_bytes": self.total_bytes or 0,
            "rate_bps": self.rate_bps or 0,
        }
        return line("send", settings)

    def receive_line(self) -> str:
        """The line of the plan for the host of the target."""
        ect0 = 2
        settings = self._common(self.target, self.source, ect0) | {
            "sport": self.ack_sport,
            "qpn": self.remote_qpn,
            "remote_qpn": self.qpn,
        }
        return line("receive", settings)

    def _common(self, local: Endpoint, remote: Endpoint, ecn: int) -> dict[str, object]:
        return {
            "id": self.id,
            "local": local.address,
            "remote": remote.address,
            "tos": self.dscp << _DSCP_SHIFT | ecn,
            "flow_label": self.flow_label,
            "udp_checksum": int(self.udp_checksum),
            "first_psn": self.first_psn,
        }


def largest_mtu(link_mtu: int) -> int:
    """The largest path MTU of RoCEv2 on links of an MTU that NICs would choose; both in bytes."""
    return max(mtu for mtu in MTUS if mtu + _HEADER_BYTES <= link_mtu)


def flow_label(qpn: int, remote_qpn: int) -> int:
    """The 20-bit flow label that Linux gives a connection between two queue pairs (`rdma_calc_flow_label`)."""
    product = qpn * remote_qpn
    product ^= product >> 20
    product ^= product >> 40
    return product & 0xFFFFF


def verbs_flow(
    number: int, source: Endpoint, target: Endpoint, qpn: int, remote_qpn: int, **settings: Any
) -> Flow:
    """A flow between two queue pairs, with the flow label and the source ports that Linux would give them."""
    label = flow_label(qpn, remote_qpn)
    return Flow(
        id=number,
        source=source,
        target=target,
        qpn=qpn,
        remote_qpn=remote_qpn,
        sport=flow_label_to_sport(label),
        ack_sport=flow_label_to_sport(label),
        flow_label=label,
        **settings,
    )


def drawn_flows(ends: Sequence[tuple[Endpoint, Endpoint]], rng: random.Random, **settings: Any) -> list[Flow]:
    """A flow for each source and target, numbered from 0; `rng` draws QPNs and first PSNs.

    Source ports follow from QPNs as they do in Linux. `settings` are further fields of `Flow`, the same for all.
    """
    qpns = rng.sample(range(_FIRST_QPN, MAX_QPN + 1), 2 * len(ends))
    return [
        verbs_flow(
            number, *pair, *qpns[2 * number : 2 * number + 2], first_psn=rng.randrange(_PSNS), **settings
        )
        for number, pair in enumerate(ends)
    ]


def line(kind: str, settings: Mapping[str, object]) -> str:
    """A line of the plan."""
    return " ".join([kind, *(f"{name}={value}" for name, value in settings.items())]) + "\n"
