"""What the kernel that runs here has, by its version."""

import platform

VERSION = tuple(int(part) for part in platform.release().split(".")[:2])
HAS_TCX = VERSION >= (6, 6)
PACKETS_OF_UDP_SEGMENTS = VERSION >= (6, 2)
"""A packet socket takes a buffer of several datagrams (VIRTIO_NET_HDR_GSO_UDP_L4)."""

TAP_HAS_METADATA = VERSION >= (6, 15)
NO_TCX = "this kernel has no TCX: Linux 6.6 has"
