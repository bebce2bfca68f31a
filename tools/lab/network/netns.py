"""Network namespaces by name: made with a mark of ownership, entered, told apart and removed."""

import ctypes
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pyroute2 import IPRoute
from pyroute2 import config as pyroute2_config
from pyroute2 import netns as pyroute2_netns

from cwdp.errors import LabError

RUN_DIR = Path("/run/netns")

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_SO_NETNS_COOKIE = 71
_LOOPBACK_INDEX = 1
_libc = ctypes.CDLL(None, use_errno=True)

# A netlink socket in a namespace is made by a child process, which takes longer than the default 2 s on a machine
# that is emulated or has much to do.
pyroute2_config.default_communicate_timeout = 60
pyroute2_config.default_create_socket_timeout = 60


@contextmanager
def netns_enter(netns: str) -> Iterator[None]:
    """Move the calling thread into the namespace `netns`, and back at the end.

    Only the calling thread moves, so code in other threads is not disturbed; do not await inside. Sockets opened
    inside stay in the namespace.

    Raises:
        LabError: there is no such namespace.
    """
    with _open(Path("/proc/thread-self/ns/net")) as home, _open(RUN_DIR / netns) as target:
        call(_libc.setns, target, _CLONE_NEWNET)
        try:
            yield
        finally:
            call(_libc.setns, home, _CLONE_NEWNET)


def enter_for_good(netns: str) -> None:
    """Move the calling thread into a namespace for the rest of its life (before an exec)."""
    with _open(RUN_DIR / netns) as target:
        call(_libc.setns, target, _CLONE_NEWNET)


def create(netns: str, mark: str) -> None:
    """Make a namespace that carries `mark` from the moment its name appears."""

    def unshare_mark_and_name() -> None:
        call(_libc.unshare, _CLONE_NEWNET)
        with IPRoute() as ip:
            ip.link("set", index=_LOOPBACK_INDEX, ifalias=mark, state="up")
        pyroute2_netns.attach(netns, threading.get_native_id())

    in_thread(unshare_mark_and_name)


def open_netlink(netns: str) -> IPRoute:
    """Open a netlink socket in a namespace; raise `LabError` if there is none of that name."""
    if not (RUN_DIR / netns).exists():
        raise _missing(netns)
    return IPRoute(netns=netns, flags=0)  # with its default flags it would make the namespace


def mark_of(netns: str) -> str | None:
    """Return the mark of a namespace, None where it has none, "" where the name leads to no namespace at all."""
    if (RUN_DIR / netns).stat().st_dev == RUN_DIR.stat().st_dev:
        return ""
    with open_netlink(netns) as ip:
        mark: str | None = ip.get_links(_LOOPBACK_INDEX)[0].get_attr("IFLA_IFALIAS")
        return mark


def remove(netns: str) -> None:
    """Remove a namespace and its name; what runs inside keeps running until it ends."""
    pyroute2_netns.remove(netns)


def cookie(netns: str) -> int:
    """Return the kernel's unsigned 64-bit number of a namespace, unique until the next boot."""
    with netns_enter(netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), "little")


def in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread of its own, which may end in another namespace; return what it returns."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(function).result()


@contextmanager
def _open(path: Path) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _missing(path.name) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _missing(netns: str) -> LabError:
    return LabError(f"there is no network namespace {netns!r}", "Run `cwdp lab down`, then `cwdp lab up`.")


def call(function: Callable[..., int], *arguments: Any) -> None:
    """Call a function of libc, loaded with `use_errno`; raise the `OSError` that it tells of."""
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
