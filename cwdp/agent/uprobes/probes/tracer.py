"""The probes: compiled by bcc, attached to libraries that named programs have mapped, and read."""

import ctypes
import importlib
import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cwdp.agent.uprobes.mapped import NCCL, VERBS
from cwdp.agent.uprobes.probes import elf
from cwdp.agent.uprobes.probes.attaching import attach
from cwdp.agent.uprobes.probes.records import COUNTS, Seen, seen

SOURCE = Path(__file__).with_name("uprobes.c")

VERSION = "IBVERBS_1.1"
"""Of the functions of libibverbs that programs call; those of IBVERBS_1.0 are for programs of before 2007, and call these."""

_COLLECTIVES = ("AllGather", "AllReduce", "Broadcast", "Recv", "Reduce", "ReduceScatter", "Send")
PROBES: dict[str, dict[str, tuple[str, str]]] = {
    VERBS: {
        "ibv_create_qp": ("", "ibv_create_qp_end"),
        "ibv_modify_qp": ("ibv_modify_qp_begin", "ibv_modify_qp_end"),
        "ibv_destroy_qp": ("ibv_destroy_qp_begin", "ibv_destroy_qp_end"),
    },
    NCCL: {
        **{f"nccl{name}": (f"nccl{name}_begin", "nccl_call_end") for name in _COLLECTIVES},
        "ncclCommInitRank": ("ncclCommInitRank_begin", "ncclCommInitRank_end"),
        "ncclCommInitRankConfig": ("ncclCommInitRank_begin", "ncclCommInitRank_end"),
        "ncclCommDestroy": ("ncclCommDestroy_begin", ""),
        "ncclCommAbort": ("ncclCommDestroy_begin", ""),
    },
}
"""What runs where a function begins and where it returns, by the kind of the library; "" for nothing."""


class TracerError(Exception):
    """The probes cannot be compiled or attached."""


class Tracer:
    """The probes. They are gone when this process is, however it ends.

    Args:
        levels: how deep the named cgroups are.

    Raises:
        TracerError: bcc does not compile them.
    """

    def __init__(self, levels: Iterable[int]) -> None:
        bcc: Any = importlib.import_module("bcc")
        asked = " || ".join(f"has_ancestor({n})" for n in sorted(set(levels)))
        try:
            self._bpf = bcc.BPF(text=SOURCE.read_text().replace("(IN_NAMED_CGROUP)", f"({asked})"))
        except Exception as error:  # bcc raises nothing narrower
            raise TracerError(f"bcc cannot compile the probes: {error}") from error
        self._kind = bcc.BPF.KPROBE
        self._seen: list[Seen] = []
        self._attached: dict[Path, list[int]] = {}
        self._bpf["events"].open_ring_buffer(self._take)

    def name(self, cgroups: Iterable[int], pids: Iterable[int]) -> None:
        """Heed programs in these cgroups of version 2 and below them, and these programs; no others."""
        _hold(self._bpf["named_cgroups"], set(cgroups))
        _hold(self._bpf["named_programs"], set(pids))

    def attach(self, path: Path, kind: str) -> int:
        """Attach to a library; returns to how many of its functions.

        Raises:
            TracerError: it cannot be read, or the kernel refuses.
        """
        self.detach(path)
        wanted, found = PROBES[kind], places(path, kind)
        fds = self._attached[path] = []
        try:
            for name, offset in found.items():
                begin, end = wanted[name]
                if begin:
                    fds.append(attach(self._program(begin), path, offset, at_return=False))
                if end:
                    fds.append(attach(self._program(end), path, offset, at_return=True))
        except OSError as error:
            self.detach(path)
            raise TracerError(f"cannot attach to {path}: {error}") from error
        return len(found)

    def detach(self, path: Path) -> None:
        """Detach from a library, if it is attached to by this path."""
        for fd in self._attached.pop(path, []):
            os.close(fd)

    def read(self, wait_s: float) -> list[Seen]:
        """The records since the last call; waits for so long for one that is not a call of NCCL, which there are many of."""
        self._bpf.ring_buffer_poll(round(1e3 * wait_s))
        self._bpf.ring_buffer_consume()
        taken, self._seen = self._seen, []
        return taken

    def counts(self) -> dict[str, int]:
        """COUNTS up to now."""
        table = self._bpf["counts"]
        return {name: int(table[table.Key(i)].value) for i, name in enumerate(COUNTS)}

    def _program(self, name: str) -> int:
        return int(self._bpf.load_func(name, self._kind).fd)

    def _take(self, _: object, data: int, size: int) -> None:
        self._seen.append(seen(ctypes.string_at(data, size)))


def places(path: Path, kind: str) -> dict[str, int]:
    """Where in its file each function of a library is that is looked for: the version that programs call.

    Raises:
        TracerError: it cannot be read.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            found = elf.functions(data, PROBES[kind])
    except (OSError, ValueError, elf.ElfError) as error:
        raise TracerError(f"cannot read {path}: {error}") from error
    chosen = [one for one in found if one.is_default and (kind != VERBS or one.version in (VERSION, ""))]
    return {one.name: one.offset for one in chosen}


def _hold(table: Any, wanted: set[int]) -> None:
    """Have these keys in a map, and no others."""
    held = {int(key.value) for key in table}
    for key in held - wanted:
        del table[table.Key(key)]
    for key in wanted - held:
        table[table.Key(key)] = table.Leaf(1)
