"""An eBPF program where a function of a file begins or returns (perf_event_open(2)), on x86-64."""

import ctypes
import fcntl
import os
import struct
from pathlib import Path

PMU = Path("/sys/bus/event_source/devices/uprobe/type")
PERF_EVENT_OPEN = 298
SET_BPF, ENABLE = 0x40042408, 0x2400
CLOSE_ON_EXEC = 8
RETURNS = 1
ATTR = struct.Struct("=IIQ40xQQ40x")
"""`struct perf_event_attr`: type, size, config, uprobe_path, probe_offset."""

_libc = ctypes.CDLL(None, use_errno=True)


def attach(program_fd: int, path: Path, offset: int, *, at_return: bool) -> int:
    """Run a program there, in every process, until the descriptor that is returned is closed.

    Args:
        program_fd: of type BPF_PROG_TYPE_KPROBE.
        path: of the file.
        offset: of the function in it.
        at_return: where it returns, else where it begins.

    Raises:
        OSError: the kernel refuses.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    kind = int(PMU.read_text())
    attr = ATTR.pack(kind, ATTR.size, RETURNS if at_return else 0, ctypes.addressof(name), offset)
    numbers = [ctypes.c_long(number) for number in (-1, 0, -1, CLOSE_ON_EXEC)]
    fd = _libc.syscall(ctypes.c_long(PERF_EVENT_OPEN), ctypes.c_char_p(attr), *numbers)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        fcntl.ioctl(fd, SET_BPF, program_fd)
        fcntl.ioctl(fd, ENABLE, 0)
    except OSError:
        os.close(fd)
        raise
    return int(fd)
