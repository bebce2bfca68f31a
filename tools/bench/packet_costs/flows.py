"""RoCEv2 packets of flows, as the programs of `build/bpf/bench.bpf.o` make the next ones of."""

import struct
from dataclasses import dataclass
from ipaddress import ip_address

import numpy as np

from cwdp.dataplane import abi

QPN_FIRST = 4_096
SPORT = 50_001
ADDRESSES = {"ipv4": ("10.0.0.1", "10.0.0.2"), "ipv6": ("fd00::1", "fd00::2")}
OPCODES = {"full": 0x07, "ack": 0x11}
BEHIND_BTH_BYTES = {"full": 3_328, "ack": 4}
FLOWS = np.dtype(
    [
        ("number", "<u4"),
        ("random", "<u4"),
        ("qps_bits", "<u4"),
        ("is_random", "<u4"),
        ("udp_offset", "<u4"),
        ("icrc_offset", "<u4"),
        ("icrc", "<u4"),
        ("sport", ">u2"),
        ("sport_flips", ">u2"),
    ]
)
"""`struct bench_flows`."""


@dataclass(frozen=True)
class Flow:
    """Packets alike but for their PSNs, of 2^qps_bits queue pairs by turns or at random."""

    family: str
    size: str
    qps_bits: int = 0
    is_random: bool = False
    sport_flips: int = 0
    dport: int = abi.ROCE_PORT

    @property
    def udp_offset(self) -> int:
        """Where the UDP header begins."""
        return 34 if self.family == "ipv4" else 54

    def frame(self) -> bytes:
        """An Ethernet frame with lengths that agree; nobody looks at its ICRC."""
        source, destination = (ip_address(address).packed for address in ADDRESSES[self.family])
        udp_length = 8 + 12 + BEHIND_BTH_BYTES[self.size] + 4
        udp = struct.pack(">HHHH", SPORT, self.dport, udp_length, 0)
        bth = struct.pack(">BBHII", OPCODES[self.size], 0, abi.BTH_PKEY, QPN_FIRST, 0)
        if self.family == "ipv4":
            head = struct.pack(">HBBHHHBBH", 0x0800, 0x45, 0, 20 + udp_length, 0, 0, 64, 17, 0)
        else:
            head = struct.pack(">HIHBB", 0x86DD, 6 << 28, udp_length, 17, 64)
        return bytes(12) + head + source + destination + udp + bth + bytes(BEHIND_BTH_BYTES[self.size] + 4)

    def record(self) -> bytes:
        """As a record of `FLOWS`."""
        record = np.zeros((), dtype=FLOWS)
        record["qps_bits"], record["is_random"] = self.qps_bits, self.is_random
        record["udp_offset"], record["icrc_offset"] = self.udp_offset, len(self.frame()) - 4
        record["sport"], record["sport_flips"] = SPORT, self.sport_flips
        return record.tobytes()
