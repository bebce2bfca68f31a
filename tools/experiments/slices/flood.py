"""RoCEv2 SENDs, never acknowledged.

Usage: python -m tools.experiments.slices.flood ADDRESS QPN FRAME_BYTES DSCP INTERVAL_S QUEUE_BYTES

It blocks when so much memory waits below it; that keeps a queue filled although it is not scheduled for a while.
"""

import itertools
import socket
import struct
import sys
import time

ROCE_PORT = 4791
SEND_ONLY = 0x04
BTH = struct.Struct(">BBHII")
HEADERS_BYTES = 14 + 20 + 8
SO_SNDBUFFORCE = 32
PSN_MASK = 0xFFFFFF


def main() -> None:
    """Send until killed; without an interval, as fast as the socket takes it."""
    address, qpn, frame_bytes, dscp = sys.argv[1], *map(int, sys.argv[2:5])
    interval_s, queue_bytes = float(sys.argv[5]), int(sys.argv[6])
    rest = bytes(frame_bytes - HEADERS_BYTES - BTH.size)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, queue_bytes // 2)  # the kernel doubles it
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        opened.bind(("", 50_000 + qpn))
        opened.connect((address, ROCE_PORT))
        for psn in itertools.count():
            opened.send(BTH.pack(SEND_ONLY, 0, 0xFFFF, qpn, psn & PSN_MASK) + rest)
            if interval_s:
                time.sleep(interval_s)


if __name__ == "__main__":
    main()
