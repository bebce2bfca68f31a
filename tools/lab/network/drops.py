"""The eBPF classifier that drops a share of a link's packets, or changes their class: loaded, and its counter read.

The caller attaches the program; it and its maps live as long as the attachment.
"""

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cwdp.dataplane.kernel.libbpf import BpfObject, map_lookup
from cwdp.errors import LabError

OBJECT = Path(__file__).parents[3] / "build/bpf/lab_link.bpf.o"

_PROGRAM = "lab_link"
_ALWAYS = 2**32
_COUNTER_BYTES = 8


@contextmanager
def loaded(share: float, tos_mask: int = 0, tos_value: int = 0) -> Iterator[tuple[int, int]]:
    """Load a classifier; yield its file descriptor and the id of its counter's map.

    Args:
        share: of the packets, 0 to 1, which it drops.
        tos_mask: bits of TOS or traffic class that it changes in all others.
        tos_value: what to.

    Raises:
        LabError: the object is not built.
        OSError: the kernel refused it.
    """
    if not OBJECT.exists():
        raise LabError(f"{OBJECT.name} is not built", "Run `make setup`.")
    with BpfObject(OBJECT) as classifier:
        classifier.set_initial_value(
            ".rodata", struct.pack("=QII", round(share * _ALWAYS), tos_mask, tos_value)
        )
        classifier.load()
        yield classifier.program_fd(_PROGRAM), _map_id(classifier.map_fd(".bss"))


def dropped_packets(map_id: int) -> int:
    """Return how many packets a classifier has dropped, 0 once it is gone."""
    fd = ctypes.CDLL("libbpf.so.1").bpf_map_get_fd_by_id(map_id)
    if fd < 0:
        return 0
    try:
        return int.from_bytes(map_lookup(fd, 0, _COUNTER_BYTES), "little")
    finally:
        os.close(fd)


def _map_id(fd: int) -> int:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines())
    return int(fields["map_id"])
