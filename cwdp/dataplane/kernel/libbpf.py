"""The few functions of libbpf 1.x that cwdp needs, typed. Failures raise OSError with the kernel's code."""

import ctypes
import errno
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Self

LOG_BYTES = 1 << 18
BPF_XDP = 37
BPF_TRACE_ITER = 28
BPF_TCX_INGRESS = 46
BPF_TCX_EGRESS = 47
XDP_FLAGS_SKB_MODE = 2
XDP_FLAGS_DRV_MODE = 4


class _LinkCreateOpts(ctypes.Structure):
    _fields_ = (("sz", c_size_t), ("flags", c_uint32), ("reserved", c_uint32))


class _TestRunOpts(ctypes.Structure):
    _fields_ = (
        ("sz", c_size_t),
        ("data_in", c_void_p),
        ("data_out", c_void_p),
        ("data_size_in", c_uint32),
        ("data_size_out", c_uint32),
        ("ctx_in", c_void_p),
        ("ctx_out", c_void_p),
        ("ctx_size_in", c_uint32),
        ("ctx_size_out", c_uint32),
        ("retval", c_uint32),
        ("repeat", c_int),
        ("duration_ns", c_uint32),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch_size", c_uint32),
    )


class _LinkInfo(ctypes.Structure):
    _fields_ = (
        ("type", c_uint32),
        ("id", c_uint32),
        ("prog_id", c_uint32),
        ("reserved", c_uint32),
        ("ifindex", c_uint32),
        ("padding", ctypes.c_uint8 * 108),
    )


class _MapInfo(ctypes.Structure):
    _fields_ = (
        ("type", c_uint32),
        ("id", c_uint32),
        ("key_size", c_uint32),
        ("value_size", c_uint32),
        ("max_entries", c_uint32),
        ("map_flags", c_uint32),
        ("padding", ctypes.c_uint8 * 104),
    )


@functools.cache
def _lib() -> ctypes.CDLL:
    lib = ctypes.CDLL("libbpf.so.1", use_errno=True)
    pointers = {
        "bpf_object__open_file": [c_char_p, c_void_p],
        "bpf_object__find_map_by_name": [c_void_p, c_char_p],
        "bpf_object__find_program_by_name": [c_void_p, c_char_p],
        "bpf_map__initial_value": [c_void_p, POINTER(c_size_t)],
    }
    integers = {
        "bpf_object__load": [c_void_p],
        "bpf_map__fd": [c_void_p],
        "bpf_map__map_flags": [c_void_p],
        "bpf_map__max_entries": [c_void_p],
        "bpf_map__reuse_fd": [c_void_p, c_int],
        "bpf_map__type": [c_void_p],
        "bpf_map__set_max_entries": [c_void_p, c_uint32],
        "bpf_map__value_size": [c_void_p],
        "bpf_program__fd": [c_void_p],
        "bpf_program__set_log_buf": [c_void_p, c_void_p, c_size_t],
        "bpf_obj_pin": [c_int, c_char_p],
        "bpf_obj_get": [c_char_p],
        "bpf_obj_get_info_by_fd": [c_int, c_void_p, POINTER(c_uint32)],
        "bpf_iter_create": [c_int],
        "bpf_link_create": [c_int, c_int, c_int, c_void_p],
        "bpf_link_update": [c_int, c_int, c_void_p],
        "bpf_link_detach": [c_int],
        "bpf_map_delete_elem": [c_int, c_void_p],
        "bpf_map_get_next_key": [c_int, c_void_p, c_void_p],
        "bpf_map_lookup_elem": [c_int, c_void_p, c_void_p],
        "bpf_map_update_elem": [c_int, c_void_p, c_void_p, c_uint64],
        "bpf_prog_test_run_opts": [c_int, c_void_p],
        "libbpf_num_possible_cpus": [],
    }
    for name, arguments in pointers.items():
        getattr(lib, name).argtypes = arguments
        getattr(lib, name).restype = c_void_p
    for name, arguments in integers.items():
        getattr(lib, name).argtypes = arguments
        getattr(lib, name).restype = c_int
    lib.bpf_object__close.argtypes = [c_void_p]
    lib.bpf_object__close.restype = None
    lib.libbpf_set_print(None)
    return lib


def _check(result: int, what: str) -> int:
    if result < 0:
        code = -result if result != -1 else ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _found(pointer: int | None, what: str) -> int:
    if not pointer:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return pointer


class BpfObject:
    """An object file between opening and closing; its maps and programs live on by their pins."""

    def __init__(self, path: Path) -> None:
        self._pointer = _found(_lib().bpf_object__open_file(os.fsencode(path), None), f"open {path}")
        self._logs: dict[str, ctypes.Array[ctypes.c_char]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it."""
        _lib().bpf_object__close(self._pointer)

    def _map(self, name: str) -> int:
        return _found(_lib().bpf_object__find_map_by_name(self._pointer, name.encode()), f"map {name}")

    def _program(self, name: str) -> int:
        return _found(
            _lib().bpf_object__find_program_by_name(self._pointer, name.encode()), f"program {name}"
        )

    def set_initial_value(self, map_name: str, value: bytes) -> None:
        """Write the first bytes that a global-data map will start with."""
        size = c_size_t()
        pointer = _found(_lib().bpf_map__initial_value(self._map(map_name), byref(size)), map_name)
        if len(value) > size.value:
            raise ValueError(f"{map_name} has {size.value} bytes, not {len(value)}")
        ctypes.memmove(pointer, value, len(value))

    def set_max_entries(self, map_name: str, count: int) -> None:
        """Give a map another size than it was written with."""
        _check(_lib().bpf_map__set_max_entries(self._map(map_name), count), f"size of {map_name}")

    def reuse_map(self, name: str, fd: int) -> None:
        """Take an existing map instead of creating one.

        Raises:
            OSError: EINVAL where it has another layout, of which libbpf itself says nothing.
        """
        pointer, found = self._map(name), _MapInfo()
        size = c_uint32(ctypes.sizeof(found))
        _check(_lib().bpf_obj_get_info_by_fd(fd, byref(found), byref(size)), f"read map {name}")
        for attribute in ("type", "value_size", "max_entries", "map_flags"):
            if getattr(_lib(), f"bpf_map__{attribute}")(pointer) != getattr(found, attribute):
                raise OSError(errno.EINVAL, f"map {name} has another {attribute}")
        _check(_lib().bpf_map__reuse_fd(pointer, fd), f"reuse map {name}")

    def keep_log(self, program: str) -> None:
        """Have the verifier's words kept for `log`."""
        self._logs[program] = ctypes.create_string_buffer(LOG_BYTES)
        pointer = self._program(program)
        _check(_lib().bpf_program__set_log_buf(pointer, self._logs[program], LOG_BYTES), f"log of {program}")

    def log(self) -> str:
        """The end of what the verifier said."""
        text = "\n".join(log.value.decode(errors="replace") for log in self._logs.values())
        return "\n".join(text.splitlines()[-6:])

    def load(self) -> None:
        """Create the maps and verify the programs."""
        _check(_lib().bpf_object__load(self._pointer), "load programs")

    def map_fd(self, name: str) -> int:
        """The file descriptor of a map, valid while the object is open."""
        return _check(_lib().bpf_map__fd(self._map(name)), f"map {name}")

    def program_fd(self, name: str) -> int:
        """The file descriptor of a program, valid while the object is open."""
        return _check(_lib().bpf_program__fd(self._program(name)), f"program {name}")


def pin(fd: int, path: Path) -> None:
    """Pin a map, program or link."""
    _check(_lib().bpf_obj_pin(fd, os.fsencode(path)), f"pin {path}")


def get(path: Path) -> int:
    """Open a pinned map, program or link; the caller closes it."""
    return _check(_lib().bpf_obj_get(os.fsencode(path)), f"open {path}")


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A pinned object's file descriptor, for a while.

    Raises:
        OSError: nothing is pinned there.
    """
    fd = get(path)
    try:
        yield fd
    finally:
        os.close(fd)


def link_create(program_fd: int, ifindex: int, attach_type: int, flags: int = 0) -> int:
    """Attach a program by a link; the caller pins and closes it."""
    opts = _LinkCreateOpts(ctypes.sizeof(_LinkCreateOpts), flags, 0)
    return _check(_lib().bpf_link_create(program_fd, ifindex, attach_type, byref(opts)), "attach")


def iterate(program_fd: int) -> None:
    """Run an iterator's program over everything that it is for, in this network namespace."""
    link = _check(_lib().bpf_link_create(program_fd, 0, BPF_TRACE_ITER, None), "attach iterator")
    try:
        with os.fdopen(_check(_lib().bpf_iter_create(link), "make iterator"), "rb", buffering=0) as run:
            while run.read(1 << 16):
                pass
    finally:
        os.close(link)


def link_update(link_fd: int, program_fd: int) -> None:
    """Swap the program behind a link, atomically."""
    _check(_lib().bpf_link_update(link_fd, program_fd, None), "update link")


def link_detach(link_fd: int) -> None:
    """Take the program off its hook now; closing the last reference does so only some time later."""
    _check(_lib().bpf_link_detach(link_fd), "detach link")


def link_target(link_fd: int) -> tuple[int, int]:
    """Interface index (0 once the interface is gone) and program id of an XDP or TCX link."""
    info = _LinkInfo()
    size = c_uint32(ctypes.sizeof(info))
    _check(_lib().bpf_obj_get_info_by_fd(link_fd, byref(info), byref(size)), "read link")
    return info.ifindex, info.prog_id


def program_id(fd: int) -> int:
    """The kernel's number of a program, never used again."""
    info = (c_uint32 * 2)()  # struct bpf_prog_info begins with type and id
    size = c_uint32(ctypes.sizeof(info))
    _check(_lib().bpf_obj_get_info_by_fd(fd, byref(info), byref(size)), "read program")
    return info[1]


def _map_info(fd: int) -> _MapInfo:
    info = _MapInfo()
    size = c_uint32(ctypes.sizeof(info))
    _check(_lib().bpf_obj_get_info_by_fd(fd, byref(info), byref(size)), "read map info")
    return info


def map_id(fd: int) -> int:
    """The kernel's number of a map, never used again."""
    return int(_map_info(fd).id)


def map_entries(fd: int) -> int:
    """How many values a map has room for."""
    return int(_map_info(fd).max_entries)


def map_value_bytes(fd: int) -> int:
    """The size of one value."""
    return int(_map_info(fd).value_size)


def map_lookup(fd: int, key: int, value_bytes: int) -> bytes:
    """One value of an array map (all CPUs' values, one behind the other, of a per-CPU one)."""
    value = ctypes.create_string_buffer(value_bytes)
    _check(_lib().bpf_map_lookup_elem(fd, byref(c_uint32(key)), value), "read map")
    return value.raw


def map_update(fd: int, key: int, value: bytes) -> None:
    """Write one value of an array map."""
    _check(_lib().bpf_map_update_elem(fd, byref(c_uint32(key)), value, 0), "write map")


def inner_map_id(fd: int) -> int | None:
    """The number of the map that is the first value of an array of maps; None where there is none."""
    value = c_uint32()
    result = _lib().bpf_map_lookup_elem(fd, byref(c_uint32(0)), byref(value))
    if result < 0 and ctypes.get_errno() == errno.ENOENT:
        return None
    _check(result, "read map")
    return value.value


def hash_update(fd: int, key: bytes, value: bytes) -> None:
    """Write one value of a hash map.

    Raises:
        OSError: E2BIG where it is full.
    """
    _check(_lib().bpf_map_update_elem(fd, key, value, 0), "write map")


def hash_lookup(fd: int, key: bytes, value_bytes: int) -> bytes | None:
    """One value of a hash map; None where there is none."""
    value = ctypes.create_string_buffer(value_bytes)
    result = _lib().bpf_map_lookup_elem(fd, key, value)
    if result < 0 and ctypes.get_errno() == errno.ENOENT:
        return None
    _check(result, "read map")
    return value.raw


def hash_delete(fd: int, key: bytes) -> bool:
    """Remove one value of a hash map; False where there was none."""
    result = _lib().bpf_map_delete_elem(fd, key)
    if result < 0 and ctypes.get_errno() == errno.ENOENT:
        return False
    _check(result, "delete from map")
    return True


def hash_items(fd: int, key_bytes: int, value_bytes: int) -> list[tuple[bytes, bytes]]:
    """Everything in a hash map; what changes meanwhile may be missing, or be there twice."""
    items: list[tuple[bytes, bytes]] = []
    key, value = ctypes.create_string_buffer(key_bytes), ctypes.create_string_buffer(value_bytes)
    previous: bytes | None = None
    while _lib().bpf_map_get_next_key(fd, previous, key) == 0:
        previous = key.raw
        if _lib().bpf_map_lookup_elem(fd, key, value) == 0:
            items.append((key.raw, value.raw))
    return items


def possible_cpus() -> int:
    """How many values a per-CPU map has for each key."""
    return _check(_lib().libbpf_num_possible_cpus(), "count CPUs")


def run(program_fd: int) -> None:
    """Run a program of the type `syscall` once.

    Raises:
        OSError: the kernel does not permit it.
    """
    opts = _TestRunOpts(sz=ctypes.sizeof(_TestRunOpts))
    _check(_lib().bpf_prog_test_run_opts(program_fd, byref(opts)), "run")


def prog_test_run(
    program_fd: int, packet: bytes, *, ctx: bytes | bytearray = b"", repeat: int = 1, flags: int = 0
) -> tuple[int, bytes, int]:
    """Run a program over a packet with BPF_PROG_TEST_RUN, in a context that, as a bytearray, is left as the program did.

    Returns:
        The verdict, the packet as the program left it, and the mean duration in ns.
    """
    out = ctypes.create_string_buffer(len(packet) + 256)
    opts = _TestRunOpts(
        sz=ctypes.sizeof(_TestRunOpts),
        data_size_in=len(packet),
        data_size_out=len(out),
        repeat=repeat,
        flags=flags,
    )
    source = ctypes.create_string_buffer(packet, len(packet))
    context = ctypes.create_string_buffer(bytes(ctx), len(ctx))
    opts.data_in = ctypes.cast(source, c_void_p)
    opts.data_out = ctypes.cast(out, c_void_p)
    if ctx:
        opts.ctx_in = ctypes.cast(context, c_void_p)
        opts.ctx_size_in = len(ctx)
    if isinstance(ctx, bytearray):
        opts.ctx_out, opts.ctx_size_out = opts.ctx_in, len(ctx)
    _check(_lib().bpf_prog_test_run_opts(program_fd, byref(opts)), "test run")
    if isinstance(ctx, bytearray):
        ctx[:] = context.raw
    return opts.retval, out.raw[: opts.data_size_out], opts.duration_ns
