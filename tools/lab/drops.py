"""The eBPF classifier that drops a share of a link's packets: loaded with libbpf, read through its map.

The caller attaches the program; it and its maps live as long as the attachment.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from cwdp.errors import LabError

OBJECT = Path(__file__).parents[2] / "build/bpf/lab_link.bpf.o"

_PROGRAM = b"lab_link"
_ALWAYS = 2**32
_RODATA, _BSS = b".rodata", b".bss"


class _MapInfo(ctypes.Structure):
    """The first fields of the kernel's `struct bpf_map_info`."""

    _fields_ = (("type", ctypes.c_uint32), ("id", ctypes.c_uint32))


@contextmanager
def loaded(share: float) -> Iterator[tuple[int, int]]:
    """Load a classifier that drops `share` (0 to 1); yield its file descriptor and the id of its counter's map.

    Raises:
        LabError: the object is not built, or the kernel refused it.
    """
    if not OBJECT.exists():
        raise LabError(f"{OBJECT.name} is not built", "Run `make setup`.")
    libbpf = _libbpf()
    opened = libbpf.bpf_object__open_file(str(OBJECT).encode(), None)
    if not opened:
        raise _error("open")
    try:
        threshold = ctypes.c_uint64(round(share * _ALWAYS))
        rodata = libbpf.bpf_object__find_map_by_name(opened, _RODATA)
        libbpf.bpf_map__set_initial_value(rodata, ctypes.byref(threshold), ctypes.sizeof(threshold))
        if libbpf.bpf_object__load(opened) != 0:
            raise _error("load")
        program = libbpf.bpf_object__find_program_by_name(opened, _PROGRAM)
        counter = libbpf.bpf_object__find_map_by_name(opened, _BSS)
        yield libbpf.bpf_program__fd(program), _map_id(libbpf.bpf_map__fd(counter))
    finally:
        libbpf.bpf_object__close(opened)


def dropped_packets(map_id: int) -> int:
    """Return how many packets a classifier has dropped, 0 once it is gone."""
    libbpf = _libbpf()
    fd = libbpf.bpf_map_get_fd_by_id(map_id)
    if fd < 0:
        return 0
    try:
        key, value = ctypes.c_uint32(0), ctypes.c_uint64(0)
        libbpf.bpf_map_lookup_elem(fd, ctypes.byref(key), ctypes.byref(value))
        return value.value
    finally:
        os.close(fd)


def _map_id(fd: int) -> int:
    info, length = _MapInfo(), ctypes.c_uint32(ctypes.sizeof(_MapInfo))
    if _libbpf().bpf_obj_get_info_by_fd(fd, ctypes.byref(info), ctypes.byref(length)) != 0:
        raise _error("describe")
    return int(info.id)


@cache
def _libbpf() -> Any:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise LabError("libbpf 1.x is not installed", "Run `make setup`.") from error
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("bpf_object__open_file", pointer, (ctypes.c_char_p, pointer)),
        ("bpf_object__find_map_by_name", pointer, (pointer, ctypes.c_char_p)),
        ("bpf_object__find_program_by_name", pointer, (pointer, ctypes.c_char_p)),
        ("bpf_object__load", ctypes.c_int, (pointer,)),
        ("bpf_object__close", None, (pointer,)),
        ("bpf_map__set_initial_value", ctypes.c_int, (pointer, pointer, ctypes.c_size_t)),
        ("bpf_map__fd", ctypes.c_int, (pointer,)),
        ("bpf_program__fd", ctypes.c_int, (pointer,)),
        ("bpf_obj_get_info_by_fd", ctypes.c_int, (ctypes.c_int, pointer, pointer)),
        ("bpf_map_get_fd_by_id", ctypes.c_int, (ctypes.c_uint32,)),
        ("bpf_map_lookup_elem", ctypes.c_int, (ctypes.c_int, pointer, pointer)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _error(doing: str) -> LabError:
    reason = os.strerror(ctypes.get_errno())
    return LabError(
        f"libbpf could not {doing} {OBJECT.name}: {reason}", "Run `make setup` to build it again."
    )
