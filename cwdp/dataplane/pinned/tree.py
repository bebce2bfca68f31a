"""The pinned-object tree: `/sys/fs/bpf/cwdp/NETNS/IFNAME/`, NETNS being the namespace's cookie.

The cookie is never used again, unlike an inode number, and tells equal interface names apart. The BPF file
system takes no dots in names, so `eth0.100` is written `eth0%2e100`.
"""

import ctypes
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cwdp.dataplane.kernel import libbpf
from cwdp.errors import DataplaneError, PrivilegeError

BPFFS = Path("/sys/fs/bpf")
ROOT = BPFFS / "cwdp"
TEMPORARY = "%new-"
SO_NETNS_COOKIE = 71
BPF_FS_MAGIC = 0xCAFE4A11
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_PERFMON": 38, "CAP_BPF": 39}
CAP_SYS_ADMIN = 21  # stands for the last two

QP_MAPS = ("qps_out", "qps_in")
BURST_STARTS = "burst_starts"
BURST_MAPS = (BURST_STARTS, "bursts")
TCP_MAPS = ("tcp_conns", "tcp_out", "tcp_steered", "tcp_in")
LATER_MAPS = (*BURST_MAPS, *TCP_MAPS)
"""A dataplane of a layout before may have none of them."""

KEPT_MAPS = (
    "slots",
    "clock",
    "test_clock",
    "keys",
    "counters",
    *QP_MAPS,
    "steer",
    "steered",
    "paths",
    "detours",
    "other_paths",
    "control",
    "samples",
    "events",
    "slices",
    "slice_table",
    "jobs",
    *LATER_MAPS,
)
MAPS = (*KEPT_MAPS, "meta")
SETTINGS_MAP = "settings"
TIMERS_PROGRAM, BURSTS_PROGRAM = "tcp_timers", "close_bursts"
PROGRAMS = ("xdp_ingress", "tc_egress", "tc_ingress", TIMERS_PROGRAM, BURSTS_PROGRAM)
XDP_LINK = "link_xdp"
TCX_LINK = "link_tcx"
TCX_INGRESS_LINK = "link_tcx_ingress"


@dataclass(frozen=True)
class TreePath:
    """Where the objects of one interface are pinned."""

    netns_cookie: int
    ifname: str

    @property
    def path(self) -> Path:
        """The directory."""
        return self.directory / _quote(self.ifname)

    @property
    def temporary(self) -> Path:
        """Where it is made before it takes its place; no quoted name looks like this."""
        return self.directory / (TEMPORARY + _quote(self.ifname))

    @property
    def directory(self) -> Path:
        """The directory of the whole network namespace."""
        return ROOT / str(self.netns_cookie)


def _quote(ifname: str) -> str:
    return ifname.replace("%", "%25").replace(".", "%2e")


def _unquote(name: str) -> str:
    return name.replace("%2e", ".").replace("%25", "%")


def netns_cookie() -> int:
    """The cookie of the calling thread's network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8), "little")


def here(ifname: str) -> TreePath:
    """The tree of an interface of this network namespace."""
    return TreePath(netns_cookie(), ifname)


def is_bpffs() -> bool:
    """Whether the BPF file system is mounted."""
    buffer = (ctypes.c_long * 32)()
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.statfs(os.fsencode(BPFFS), buffer) == 0 and buffer[0] == BPF_FS_MAGIC


def require_privileges() -> None:
    """Loading and reading the dataplane need capabilities, which root has unless they were taken from it.

    CAP_PERFMON because the verifier lets only its holders compare packet pointers with NULL, as the parser does.

    Raises:
        PrivilegeError: one is missing.
    """
    held = effective_capabilities()
    if held >> CAP_SYS_ADMIN & 1:
        held |= 1 << CAPABILITIES["CAP_PERFMON"] | 1 << CAPABILITIES["CAP_BPF"]
    missing = [name for name, bit in CAPABILITIES.items() if not held >> bit & 1]
    if missing:
        raise PrivilegeError(
            f"this needs {', '.join(missing)}", "run it with sudo, or give its service these capabilities"
        )


def effective_capabilities() -> int:
    """The calling thread's effective capabilities, one bit each (capabilities(7))."""
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))


def ensure_bpffs() -> None:
    """Mount the BPF file system where it is not.

    Raises:
        DataplaneError: the kernel refused.
    """
    if is_bpffs():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"bpf", os.fsencode(BPFFS), b"bpf", 0, b"mode=0700") != 0:
        reason = os.strerror(ctypes.get_errno())
        raise DataplaneError(
            f"there is no BPF file system at {BPFFS}, and mounting one failed: {reason}",
            f"run: mount -t bpf bpf {BPFFS}",
        )


@contextmanager
def locked() -> Iterator[None]:
    """Hold the lock of the whole tree, with what a crash left half made cleared away."""
    require_privileges()
    ensure_bpffs()
    try:
        ROOT.mkdir(mode=0o750, exist_ok=True)
    except OSError as error:
        raise DataplaneError(
            f"cannot create {ROOT}: {error.strerror}", "is the BPF file system full?"
        ) from error
    fd = os.open(ROOT, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        for path in _below():
            if path.name.startswith(TEMPORARY):
                discard(path)
        yield
    finally:
        os.close(fd)


def all_trees() -> list[TreePath]:
    """Every tree on this machine, of whichever namespace."""
    if not is_bpffs() or not ROOT.is_dir():
        return []
    found = (path for path in _below() if path.parent.name.isdigit() and not path.name.startswith(TEMPORARY))
    return sorted(
        (TreePath(int(path.parent.name), _unquote(path.name)) for path in found), key=lambda t: str(t.path)
    )


def _below() -> Iterator[Path]:
    """What is in the folders of all network namespaces, those left out that go away meanwhile."""
    for folder in _listed(ROOT):
        yield from _listed(folder)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def trees_here() -> list[TreePath]:
    """Every tree of this network namespace."""
    cookie = netns_cookie()
    return [where for where in all_trees() if where.netns_cookie == cookie]


def remove(tree: TreePath) -> None:
    """Detach and unpin everything; maps that somebody holds open live on."""
    _detach_links(tree.path)
    shutil.rmtree(tree.path)
    remove_if_empty(tree.directory)


def discard(temporary: Path) -> None:
    """Remove a temporary directory.

    What is attached by its links alone is detached; the links of an upgrade are those of the tree as well.
    """
    if not temporary.with_name(temporary.name.removeprefix(TEMPORARY)).exists():
        _detach_links(temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def _detach_links(directory: Path) -> None:
    for name in (XDP_LINK, TCX_LINK, TCX_INGRESS_LINK):
        with suppress(OSError):
            link = libbpf.get(directory / name)
            try:
                libbpf.link_detach(link)
            finally:
                os.close(link)


def remove_if_empty(directory: Path) -> None:
    """Remove a namespace's directory that holds nothing any more."""
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
