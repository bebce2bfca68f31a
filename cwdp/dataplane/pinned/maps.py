"""Typed access to the pinned maps of one interface."""

import math
import mmap
import os
import sys
from contextlib import suppress
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cwdp.dataplane import abi
from cwdp.dataplane.abi import Direction, Reason, Sender
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.barrier import store_barrier
from cwdp.dataplane.pinned.tree import BURST_STARTS, BURSTS_PROGRAM, KEPT_MAPS, LATER_MAPS, TreePath

Q40, Q48 = float(1 << 40), float(1 << 48)


class Maps:
    """The open maps of one interface; most are shared memory, read and written in place.

    Attributes:
        where: the tree.
        slots: the table of probes under way and results, pulses behind pairs; shape (SLOTS + PULSE_SLOTS,),
            dtype `abi.SLOT`.
        qps: queue pairs by direction; each shape (buckets * QP_WAYS,), dtype `abi.QP`, free ones with a tag of 0.
        steered_qps: how many queue pairs are steered, by the lowest bits of their QPNs; shape (STEERED_QPNS,), uint32.
        paths: watched paths by their numbers; shape (PATHS,), dtype `abi.PATH`, free ones without users.
        control: what may be changed while packets flow; shape (1,), dtype `abi.CONTROL`.
        samples: data packets stamped, by their numbers; shape (SAMPLES,), dtype `abi.SAMPLE`.
        events: decisions of the dataplane, by their numbers; shape (EVENTS,), dtype `abi.EVENT`.
        slices: bandwidth slices by their numbers; shape (SLICES,), dtype `abi.SLICE`, free ones without a name.
        slice_table: which queue pairs are in which slice; shape (1,), dtype `abi.SLICE_TABLE`.
    """

    def __init__(self, where: TreePath) -> None:
        self.where = where
        self._fds = {
            name: libbpf.get(where.path / name)
            for name in KEPT_MAPS
            if name not in LATER_MAPS or (where.path / name).exists()
        }
        self.slots = self._shared("slots", abi.SLOT)
        self._clock = self._shared("clock", abi.CLOCK)
        self.qps = {
            Direction.EGRESS: self._shared("qps_out", abi.QP, abi.QP_WAYS),
            Direction.INGRESS: self._shared("qps_in", abi.QP, abi.QP_WAYS),
        }
        self.steered_qps: NDArray[np.uint32] = self._shared("steered", abi.STEERED)["qps"][0]
        self.paths = self._shared("paths", abi.PATH)
        self.control = self._shared("control", abi.CONTROL)
        self.samples = self._shared("samples", abi.SAMPLE)
        self.events = self._shared("events", abi.EVENT)
        self.slices = self._shared("slices", abi.SLICE)
        self.slice_table = self._shared("slice_table", abi.SLICE_TABLE)
        self._cpus = libbpf.possible_cpus()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def tcp_conns(self) -> NDArray[np.void]:
        """Steered TCP connections by their numbers; shape (TCP_CONNS,), dtype `abi.TCP_CONN`, free ones without flags."""
        return self._shared("tcp_conns", abi.TCP_CONN)

    @cached_property
    def tcp_steered(self) -> NDArray[np.void]:
        """How many of those there are; shape (1,), dtype `abi.TCP_STEERED`."""
        return self._shared("tcp_steered", abi.TCP_STEERED)

    @cached_property
    def bursts(self) -> NDArray[np.void]:
        """Bursts of queue pairs that are over, by their numbers; shape (BURSTS,), dtype `abi.BURST`."""
        return self._shared("bursts", abi.BURST)

    @cached_property
    def burst_starts(self) -> NDArray[np.void]:
        """Those under way, by place and direction; shape (2 * places,), dtype `abi.BURST_START`, none with a tag of 0."""
        return self._shared(BURST_STARTS, abi.BURST_START)

    def close_bursts(self) -> None:
        """Have the bursts closed of queue pairs that send no more; nothing where the tree has been taken away.

        Raises:
            OSError: the kernel does not permit it.
        """
        with suppress(FileNotFoundError), libbpf.opened(self.where.path / BURSTS_PROGRAM) as program:
            libbpf.run(program)

    def _shared(self, name: str, dtype: np.dtype[np.void], each: int = 1) -> NDArray[np.void]:
        """An array map whose values are `each` records."""
        return shared(self._fds[name], dtype, each)

    def still_pinned(self) -> bool:
        """Whether the tree still has these very maps: it may have been unloaded and loaded anew."""
        try:
            pinned = libbpf.get(self.where.path / "slots")
        except OSError:
            return False
        try:
            return libbpf.map_id(pinned) == libbpf.map_id(self._fds["slots"])
        finally:
            os.close(pinned)

    def close(self) -> None:
        """Close the maps; the arrays stay readable as long as somebody holds them."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def counters(self) -> dict[str, int]:
        """Totals over all CPUs since the dataplane was loaded, by reason in lower case."""
        totals = self._totals()
        return {reason.name.lower(): int(totals[reason]) for reason in Reason}

    def qp_places_made(self) -> int:
        """How often a queue pair was given a place; it is counted when it has its place."""
        totals = self._totals()
        return int(totals[Reason.QP_ADDED]) + int(totals[Reason.QP_EVICTED])

    def _totals(self) -> NDArray[np.uint64]:
        size = abi.COUNTERS.itemsize
        raw = libbpf.map_lookup(self._fds["counters"], 0, size * self._cpus)
        totals: NDArray[np.uint64] = np.frombuffer(raw, dtype=abi.COUNTERS)["count"].sum(axis=0)
        return totals

    @property
    def steer_fd(self) -> int:
        """The hash map of steered queue pairs."""
        return self._fds["steer"]

    @property
    def tcp_out_fd(self) -> int:
        """The hash map of the numbers of steered TCP connections."""
        return self._fds["tcp_out"]

    @property
    def tcp_in_fd(self) -> int:
        """The hash map of ports that segments are given back."""
        return self._fds["tcp_in"]

    @property
    def paths_fd(self) -> int:
        """The array map of watched paths."""
        return self._fds["paths"]

    @property
    def detours_fd(self) -> int:
        """The hash map of detours by destination."""
        return self._fds["detours"]

    def follow_paths_of(self, other: "Maps") -> None:
        """Have the dataplane read the paths of this host's other NIC."""
        outer, inner = self._fds["other_paths"], other.paths_fd
        followed = libbpf.inner_map_id(outer)
        if followed != libbpf.map_id(inner):
            libbpf.map_update(outer, 0, inner.to_bytes(4, sys.byteorder))

    @property
    def jobs_fd(self) -> int:
        """The hash map of queue pairs and the jobs that they are of."""
        return self._fds["jobs"]

    def next_generation(self) -> None:
        """Have every queue pair's steering and slice looked up again, as they have been written so far."""
        store_barrier()
        self.control["generation"][0] = int(self.control["generation"][0]) % 0xFFFFFFFF + 1

    def sign_for(self, sender: Sender, cookie: int) -> None:
        """Have the probes of a socket signed, by its SO_COOKIE, and those of the one before it no more."""
        self.control["senders"][0, sender] = cookie

    def set_key(self, key_id: int, secret: bytes) -> None:
        """Accept and sign with a key of 16 bytes; it takes the place of the one with an id as even or as odd."""
        record = np.zeros((), dtype=abi.KEY)
        record["k0"], record["k1"] = np.frombuffer(secret, dtype="<u8")
        record["key_id"], record["valid"] = key_id, 1
        libbpf.map_update(self._fds["keys"], key_id % abi.KEYS, record.tobytes())

    def drop_key(self, key_id: int) -> None:
        """Accept nothing signed with a key any more."""
        libbpf.map_update(self._fds["keys"], key_id % abi.KEYS, bytes(abi.KEY.itemsize))

    def key_ids(self) -> list[int]:
        """The keys that are valid now."""
        raw = b"".join(libbpf.map_lookup(self._fds["keys"], i, abi.KEY.itemsize) for i in range(abi.KEYS))
        records = np.frombuffer(raw, dtype=abi.KEY)
        return sorted(int(k) for k in records["key_id"][records["valid"] == 1])

    def write_clock(
        self,
        *,
        ref_local_ns: int,
        offset_ns: int,
        drift: float,
        slew: float = 0.0,
        slew_ns: int = 0,
        bound_ns: float,
        bound_drift: float,
    ) -> None:
        """Have timestamps converted with a new line.

        timeline = local + offset + d * drift + min(d, slew_ns) * slew, with d = local - ref.
        """
        line = np.zeros((), dtype=abi.CLOCK_LINE)
        line["ref_local_ns"], line["offset_ns"] = ref_local_ns, offset_ns
        line["drift_q48"], line["bound_drift_q48"] = round(drift * Q48), round(bound_drift * Q48)
        line["slew_q48"], line["slew_ns"] = round(slew * Q48), slew_ns
        line["bound_ns"], line["synced"] = math.ceil(min(bound_ns, abi.BOUND_UNSYNCED - 1)), 1
        self._switch("lines", "active", line)

    def write_base(self, *, ref_mono_ns: int, ahead_ns: int, rate: float) -> None:
        """Have local time made of CLOCK_MONOTONIC with a new line: mono + ahead + (mono - ref) * rate."""
        line = np.array((ref_mono_ns, ahead_ns, round(rate * Q40)), dtype=abi.BASE_LINE)
        self._switch("base_lines", "base_active", line)

    def _switch(self, lines: str, active: str, line: NDArray[np.void]) -> None:
        """Fill the line that is not in force, then put it in force: no reader sees half of it."""
        inactive = 1 - (int(self._clock[active][0]) & 1)
        self._clock[lines][0, inactive] = line
        store_barrier()
        self._clock[active][0] = inactive

    @property
    def ahead_of_raw_ns(self) -> int:
        """Local time less CLOCK_MONOTONIC_RAW, as an agent has kept it for the next one; 0 where none has."""
        return int(self._clock[0]["ahead_of_raw_ns"])

    @ahead_of_raw_ns.setter
    def ahead_of_raw_ns(self, ahead_ns: int) -> None:
        self._clock["ahead_of_raw_ns"][0] = ahead_ns

    def read_base(self) -> NDArray[np.void]:
        """The line that makes local time now, a record of `abi.BASE_LINE`."""
        line: NDArray[np.void] = self._clock["base_lines"][0, int(self._clock[0]["base_active"]) & 1].copy()
        return line

    def clear_clock(self) -> None:
        """Declare this host's clock unsynced."""
        self._switch("lines", "active", np.zeros((), dtype=abi.CLOCK_LINE))

    def read_clock(self) -> NDArray[np.void]:
        """The line in force, a record of `abi.CLOCK_LINE`."""
        line: NDArray[np.void] = self._clock["lines"][0, int(self._clock[0]["active"]) & 1].copy()
        return line


def shared(fd: int, dtype: np.dtype[np.void], each: int = 1) -> NDArray[np.void]:
    """An array map that can be shared memory, with `each` records a value; shape (values * each,)."""
    count = libbpf.map_entries(fd) * each
    size = -(-dtype.itemsize * count // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    return np.frombuffer(memory, dtype=dtype, count=count)
