"""Drivers and libraries, and which versions of them."""

import re
from collections.abc import Iterator

from cwdp.audit.answers import Gpus, Own, Uname
from cwdp.audit.notes import Notes, shown
from cwdp.audit.source import Source
from cwdp.audit.subjects import Found
from cwdp.audit.unreadable import Unreadable

MODULES = "proc/modules"
MATTER = re.compile(
    r"amdgpu|bnxt_(en|re)|bonding|efa|ena|gdrdrv|ib_(core|umad|uverbs)|ice|ionic|irdma|iw_cxgb4|mana|mana_ib|mlx[45]_\w+|mlxfw"
    r"|nouveau|nv_peer_mem|nvidia\w*|rdma_\w+|8021q|siw|virtio_net"
)
PEER_MEMORY = {"nvidia_peermem", "nv_peer_mem"}
DMA_BUF_SINCE = (5, 12)
"""From this kernel on RDMA devices take memory by DMA-BUF; only the open kernel modules of NVIDIA give it away so."""

LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
OWN_VERSION = re.compile(r"\d+\.\d+-\d+")
"""Of mlx5_core as old kernels have it, such as `5.0-0`."""


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `software`."""
    del found
    notes = Notes("host")
    notes.note("modules", lambda: sorted(name for name in _modules(source) if MATTER.fullmatch(name)))
    notes.note("ofed_version", lambda: _ofed(source))
    notes.note("rdma_core_version", lambda: _rdma_core(source))
    notes.note("gpu_driver", lambda: _gpu_driver(source))
    notes.note("has_gpu_peer_memory", lambda: _has_peer_memory(source))
    notes.note("cwdp_version", lambda: source.ask(Own).version)
    yield notes


def _modules(source: Source) -> set[str]:
    """The first word of each line (proc(5))."""
    return {line.split()[0] for line in source.text(MODULES).splitlines() if line.split()}


def _ofed(source: Source) -> str | None:
    path = "sys/module/mlx5_core/version"
    if not source.exists(path):
        return None
    version = source.text(path)
    return None if OWN_VERSION.fullmatch(version) else version


def _rdma_core(source: Source) -> str:
    for folder in LIBRARY_FOLDERS:
        try:
            name = source.target(f"{folder}/libibverbs.so.1").rpartition("/")[2]
        except Unreadable:
            continue
        return name.removeprefix("libibverbs.so.")
    raise Unreadable("libibverbs is not installed")


def _gpu_driver(source: Source) -> str | None:
    try:
        return source.ask(Gpus).driver
    except Unreadable:
        pass
    for name in ("nvidia", "amdgpu"):
        if source.exists(f"sys/module/{name}/version"):
            return source.text(f"sys/module/{name}/version")
    if {"nvidia", "amdgpu"} & _modules(source):
        return f"of the kernel {source.ask(Uname).release}"
    return None


def _has_peer_memory(source: Source) -> bool | None:
    """AMD's driver gives memory away by DMA-BUF since it can; NVIDIA's by a module of its own, or where it is open."""
    modules = _modules(source)
    if not {"nvidia", "amdgpu"} & modules:
        return None
    if modules & PEER_MEMORY:
        return True
    is_open = "amdgpu" in modules or "Open Kernel Module" in source.text("proc/driver/nvidia/version")
    return is_open and _release(source) >= DMA_BUF_SINCE


def _release(source: Source) -> tuple[int, int]:
    release = source.ask(Uname).release
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    if numbers is None:
        raise Unreadable(f"not a release: '{shown(release)}'")
    return int(numbers[1]), int(numbers[2])
