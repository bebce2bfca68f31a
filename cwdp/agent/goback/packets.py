"""What is said for a queue pair once its path is given up: a NAK to it, as the far end would send it, and an ACK of its own.

IBTA 9.7.5.1.2, 9.7.5.2.2: the PSN of an ACK is the last that was executed. That of a NAK of a PSN sequence error is the one
that the responder waits for; all before it is acknowledged, all from it on is to be sent again.
"""

import socket
import struct

from cwdp.agent.probing.packets import DSCP_DEFAULT, TTL
from cwdp.dataplane import abi
from cwdp.dataplane.icrc import icrc
from cwdp.shared.addresses import Address

ACKNOWLEDGE = 0x11  # of the transport RC
MIGRATED = 0x40
PSN_SEQUENCE_ERROR = 0x60
UDP_BYTES, BTH_BYTES, AETH_BYTES, ICRC_BYTES = 8, 12, 4, 4
IDENTIFICATION = 0xC3D9  # the kernel draws one where there is 0, and the ICRC covers it

_LENGTH = UDP_BYTES + BTH_BYTES + AETH_BYTES + ICRC_BYTES
_IPV4 = struct.Struct(">BBHHHBBH4s4s")
_IPV6 = struct.Struct(">IHBB16s16s")
_UDP = struct.Struct(">HHHH")
_BTH = struct.Struct(">BBHII")
_AETH = struct.Struct(">I")


def nak(far: Address, here: Address, lqpn: int, psn: int) -> bytes:
    """What the far end would say to a queue pair of this host, to go back to a PSN; the IP packet, with its ICRC."""
    return acknowledgement(far, here, lqpn, PSN_SEQUENCE_ERROR << 24, psn)


def acknowledgement(source: Address, destination: Address, qpn: int, aeth: int, psn: int) -> bytes:
    """What one end's queue pair says to the other's, which has that QPN; the IP packet, with its ICRC.

    The kernel fills in the IPv4 checksum.
    """
    datagram = b"".join(
        (
            _ip(source, destination),
            _UDP.pack(abi.SPORT_MIN, abi.ROCE_PORT, _LENGTH, 0),
            _BTH.pack(ACKNOWLEDGE, MIGRATED, abi.BTH_PKEY, qpn, psn),
            _AETH.pack(aeth),
        )
    )
    return datagram + icrc(datagram)


def _ip(source: Address, destination: Address) -> bytes:
    addresses = source.packed, destination.packed
    if source.version == 4:
        whole = _IPV4.size + _LENGTH
        head = (0x45, DSCP_DEFAULT, whole, IDENTIFICATION, 0, TTL, socket.IPPROTO_UDP, 0)
        return _IPV4.pack(*head, *addresses)
    return _IPV6.pack(6 << 28 | DSCP_DEFAULT << 20, _LENGTH, socket.IPPROTO_UDP, TTL, *addresses)
