"""Which spine TCP segments cross between two addresses, as seen at the spines: whatever made them choose it."""

import select
import socket
import time
from collections import Counter, defaultdict
from contextlib import ExitStack

from cwdp.dataplane import abi
from cwdp.shared.addresses import Address, bytes_address
from tools.lab.lab import Lab
from tools.lab.network.netns import netns_enter

SEEN_S = 0.3
_ETH_P_ALL, _PACKET_OUTGOING, _TCP = 3, 4, 6
_FRAME_BYTES = 128
_PROBE = abi.TCP_PROBE.to_bytes(4, "big")
"""Data offset, flags and window of a probe's TCP header."""

Between = tuple[Address, Address]


def spines_crossed(lab: Lab) -> dict[Between, str]:
    """The spine that most segments cross now, by source and destination; watches for SEEN_S."""
    counts: defaultdict[Between, Counter[str]] = defaultdict(Counter)
    with ExitStack() as stack:
        taps = {}
        for spine in lab.topology.spines:
            with netns_enter(lab.netns(spine)):
                tap = stack.enter_context(
                    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
                )
            tap.setblocking(False)
            taps[tap] = spine
        end_s = time.monotonic() + SEEN_S
        while (left_s := end_s - time.monotonic()) > 0:
            for tap in select.select(list(taps), [], [], left_s)[0]:
                frame, (_, _, kind, *_) = tap.recvfrom(_FRAME_BYTES)
                between = None if kind == _PACKET_OUTGOING else tcp_between(frame)
                if between is not None:
                    counts[between][taps[tap]] += 1
    return {between: seen.most_common(1)[0][0] for between, seen in counts.items()}


def tcp_between(frame: bytes) -> Between | None:
    """Source and destination of an Ethernet frame with TCP over IPv4 or IPv6 without extensions; None for others and for cwdp's probes."""
    match frame[12:14]:
        case b"\x08\x00" if len(frame) >= 34 and frame[23] == _TCP and not _is_probe(frame[34:]):
            mapped = bytes(10) + b"\xff\xff"
            return bytes_address(mapped + frame[26:30]), bytes_address(mapped + frame[30:34])
        case b"\x86\xdd" if len(frame) >= 54 and frame[20] == _TCP and not _is_probe(frame[54:]):
            return bytes_address(frame[22:38]), bytes_address(frame[38:54])
    return None


def _is_probe(segment: bytes) -> bool:
    return segment[12:16] == _PROBE
