"""All that the process for uprobes does, but for waiting."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from cwdp.agent.programs.jobs import told_job
from cwdp.agent.programs.programs import environment, program, started
from cwdp.agent.uprobes import cgroups
from cwdp.agent.uprobes.calls import SeenCalls
from cwdp.agent.uprobes.cgroups import Mounts
from cwdp.agent.uprobes.libraries import File, Libraries
from cwdp.agent.uprobes.mapped import FileId
from cwdp.agent.uprobes.orders import COUNTERS, Owner, UprobesWord
from cwdp.agent.uprobes.probes.records import CallSeen, CommSeen, QpSeen, Seen
from cwdp.agent.uprobes.probes.tracer import TracerError
from cwdp.agent.uprobes.requirements import Lack, lack

MOST_QPS = 1_024
"""Of one word."""

MOST_QPS_WAITING = 65_536
RETRY_S = 60.0
"""After probes could not be compiled."""

PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1_024


class Probing(Protocol):
    """See `cwdp.agent.uprobes.probes.tracer.Tracer`."""

    def name(self, cgroups: Iterable[int], pids: Iterable[int]) -> None:
        """Heed these."""

    def attach(self, path: Path, kind: str) -> int:
        """Attach to a library."""

    def detach(self, path: Path) -> None:
        """Detach from it."""

    def read(self, wait_s: float) -> list[Seen]:
        """What was seen."""

    def counts(self) -> dict[str, int]:
        """What came to nothing."""


class Tracing:
    """Programs of named cgroups.

    Args:
        names: of the cgroups.
        where: the hierarchies.
        make: compiles the probes, given how deep the cgroups are; it may raise TracerError.
        lacks: what is missing on this host.
    """

    def __init__(
        self,
        names: list[str],
        where: Mounts,
        make: Callable[[Iterable[int]], Probing],
        lacks: Callable[[], Lack | None] = lack,
    ) -> None:
        self._names, self._where, self._make, self._lacks = names, where, make, lacks
        self._counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._calls = SeenCalls(self._counters)
        self._libraries = Libraries(started)
        self._probes: Probing | None = None
        self._attached: dict[FileId, File] = {}
        self._failed: dict[FileId, str] = {}
        self._refused, self._retry_s = "", 0.0
        self._missing: list[str] = []
        self._jobs: dict[int, str] = {}
        self._owners: dict[int, Owner] = {}
        self._qps: list[tuple[QpSeen, Owner]] = []

    @property
    def is_tracing(self) -> bool:
        """Whether any library is attached to."""
        return bool(self._attached)

    def look(self, now_s: float) -> None:
        """See which cgroups, programs and libraries there are, and trace those."""
        named = cgroups.find(self._names, self._where)
        self._missing = named.missing
        files = self._libraries.follow(sorted(named.pids), now_s)
        self._counters["programs_unreadable"] = self._libraries.unreadable
        self._counters["libraries_unreachable"] = self._libraries.unreachable
        self._jobs = {pid: job for pid, job in self._jobs.items() if pid in named.pids}
        self._calls.forget(named.pids.__contains__)
        self._owners.clear()
        if self._probes is None:
            self._begin(now_s, has_files=bool(files))
        if self._probes is not None:
            self._probes.name(named.ids, named.by_pid)
            self._attach(self._probes, files)

    def read(self, wait_s: float) -> None:
        """Take in what was seen, waiting for so long for something."""
        for seen in [] if self._probes is None else self._probes.read(wait_s):
            if isinstance(seen, QpSeen):
                self._hear_qp(seen)
            elif isinstance(seen, CommSeen):
                self._calls.hear_comm(seen)
            else:
                self._hear_call(seen)

    def word(self) -> UprobesWord:
        """What there is to be said."""
        told, self._qps = self._qps[:MOST_QPS], self._qps[MOST_QPS:]
        calls = self._calls.take(self._job_of)
        return UprobesWord(counters=self._numbers(), trouble=self.trouble, queue_pairs=told, calls=calls)

    @property
    def has_news(self) -> bool:
        """Whether anything is to be said soon."""
        return bool(self._qps)

    @property
    def trouble(self) -> str:
        """Why not all is traced that should be, now; "" where nothing is amiss."""
        if self._refused:
            return self._refused
        if self._missing:
            return f"no such cgroup: {', '.join(self._missing)}"
        if self._libraries.are_hidden:
            return (
                "programs of the named cgroups cannot be looked at: CAP_SYS_PTRACE, and ProtectProc=default"
            )
        return next(iter(self._failed.values()), "")

    def _begin(self, now_s: float, *, has_files: bool) -> None:
        """Compile the probes as soon as there is something to attach them to; say at once what that lacks."""
        if now_s < self._retry_s:
            return
        lacking = self._lacks()
        self._refused = "" if lacking is None else f"{lacking.what}: {lacking.next_step}"
        if lacking is not None or not has_files:
            return
        self._retry_s = now_s + RETRY_S
        try:
            self._probes = self._make([cgroups.level(name) for name in self._names])
        except TracerError as error:
            self._refused = str(error)

    def _attach(self, probes: Probing, files: dict[FileId, File]) -> None:
        for name in self._attached.keys() - files.keys():
            probes.detach(self._attached.pop(name).path)
        self._failed = {name: why for name, why in self._failed.items() if name in files}
        for name, file in files.items():
            if name in self._attached or name in self._failed:
                continue
            try:
                probes.attach(file.path, file.kind)
            except TracerError as error:
                self._failed[name] = str(error)
                self._counters["attach_failed"] += 1
            else:
                self._attached = {
                    other: its for other, its in self._attached.items() if its.path != file.path
                }
                self._attached[name] = file
                self._counters["attached"] += 1

    def _hear_qp(self, seen: QpSeen) -> None:
        if len(self._qps) >= MOST_QPS_WAITING:
            self._counters["queue_pairs_untold"] += 1
            return
        owner = self._owners.get(seen.pid)
        if owner is None:
            owner = Owner(seen.pid, started(seen.pid) or 0, told_job(environment(seen.pid)))
            self._owners[seen.pid] = owner
        self._qps.append((seen, owner))

    def _hear_call(self, seen: CallSeen) -> None:
        if self._libraries.has_plugin(seen.pid):
            self._counters["calls_of_plugins"] += 1
        else:
            self._calls.hear(seen)

    def _job_of(self, pid: int) -> str:
        if pid not in self._jobs:
            self._jobs[pid] = program(pid, told_job(environment(pid))).job
        return self._jobs[pid]

    def _numbers(self) -> dict[str, int]:
        if self._probes is not None:
            for name, count in self._probes.counts().items():
                self._counters[f"records_{name}"] = count
        memory = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB
        states = {"programs": len(self._libraries), "libraries": len(self._attached), "memory_kib": memory}
        return {f"uprobes_{name}": n for name, n in {**self._counters, **states}.items()}
