"""All-reduces of OpenMPI over TCP between hosts of a lab: how they are started, and what they tell."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from cwdp.errors import LabError
from tools.lab import Lab
from tools.lab.topology import MGMT, MGMT_ADDRESS, MGMT_PREFIX_LENGTH

PROGRAM = Path(__file__).parents[2] / "build/mpi/cwdp-allreduce"
LAUNCHER = Path(__file__).parent / "into_host.sh"
END_TIMEOUT_S = 60.0

RING = 1
"""Of the algorithms of OpenMPI's `iallreduce`."""

Family = Literal["ipv4", "ipv6"]
_OTHER_FAMILY = {"ipv4": "6", "ipv6": "4"}
"""What OpenMPI's `btl_tcp_disable_family` is to be."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """All-reduces among some hosts, a rank each.

    Attributes:
        members: the hosts in the order of their ranks. Each sends to the next, the last one to the first: OpenMPI is told
            to take its ring, as from 4.1 on it takes Rabenseifner's algorithm by itself, pairs in turn
            (ompi/mca/coll/libnbc/nbc_iallreduce.c).
        size_bytes: of what is summed up.
        ports: the first of those that its ranks listen at, and how many there are.
        family: of the addresses between the ranks.
    """

    members: tuple[str, ...]
    size_bytes: int
    ports: tuple[int, int]
    family: Family = "ipv4"

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Who sends to whom."""
        return list(zip(self.members, (*self.members[1:], self.members[0]), strict=True))

    @property
    def sent_bytes(self) -> float:
        """What each rank sends in one all-reduce: 2 (n - 1) / n times what there is to sum up."""
        return 2 * (len(self.members) - 1) / len(self.members) * self.size_bytes


@dataclass(frozen=True, eq=False)
class Reduces:
    """What came of a job: when all-reduces began and ended, CLOCK_MONOTONIC in ns, shape (n,), and how many sums were wrong."""

    began_ns: NDArray[np.int64]
    ended_ns: NDArray[np.int64]
    wrong: int

    @classmethod
    def parse(cls, told: str) -> "Reduces":
        """From what the program writes.

        Raises:
            LabError: it is something else.
        """
        try:
            lines = np.array([line.split() for line in told.splitlines()], np.int64).reshape(-1, 3)
        except ValueError as error:
            raise LabError(f"the all-reduces told {told[-200:]!r}", "its own words are above") from error
        return cls(lines[:, 0], lines[:, 1], int(lines[:, 2].sum()))


def command(job: Job, seconds: float, files: Path) -> list[str]:
    """How `mpirun` is called in the lab's management node; its own files are below `files`, which jobs do not share."""
    first, count = job.ports
    version = job.family[-1]
    settings: dict[str, str | int] = {
        "plm_rsh_agent": str(LAUNCHER),
        "plm_rsh_no_tree_spawn": 1,
        "orte_tmpdir_base": str(files),
        "oob_tcp_if_include": f"{MGMT_ADDRESS - 1}/{MGMT_PREFIX_LENGTH}",
        "pml": "ob1",
        "coll_libnbc_iallreduce_algorithm": RING,
        "btl": "tcp,self",
        "btl_tcp_if_include": "nic0",
        "btl_tcp_disable_family": _OTHER_FAMILY[job.family],
        f"btl_tcp_port_min_v{version}": first,
        f"btl_tcp_port_range_v{version}": count,
    }
    chosen = [word for name, value in settings.items() for word in ("--mca", name, str(value))]
    hosts = ",".join(f"{member}:1" for member in job.members)
    called = ["mpirun", "--host", hosts, "-np", str(len(job.members)), "--bind-to", "none", *chosen]
    return [*called, str(PROGRAM), str(job.size_bytes), str(seconds)]


class Running:
    """A job under way in a lab; as a context, stopped on exit."""

    def __init__(self, lab: Lab, job: Job, seconds: float) -> None:
        self.job, self._seconds = job, seconds
        files = lab.run_dir / f"mpi-{job.ports[0]}"
        files.mkdir(exist_ok=True)
        allowed = {f"OMPI_ALLOW_RUN_AS_ROOT{more}": "1" for more in ("", "_CONFIRM")}
        self._process: subprocess.Popen[str] = lab.popen(
            MGMT,
            command(job, seconds, files),
            env=os.environ | allowed | {"CWDP_LAB": lab.name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def result(self) -> Reduces:
        """Wait for the end.

        Raises:
            LabError: it failed, or did not come to an end.
        """
        try:
            told, _ = self._process.communicate(timeout=self._seconds + END_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise LabError("the all-reduces did not end", "is the lab whole?") from error
        if self._process.returncode != 0:
            raise LabError(f"mpirun ended with {self._process.returncode}", "its own words are above")
        return Reduces.parse(told)


def run(lab: Lab, jobs: Sequence[Job], seconds: float) -> list[Reduces]:
    """Run some jobs at the same time. Raises what `Running.result` raises."""
    running = [Running(lab, job, seconds) for job in jobs]
    try:
        return [one.result() for one in running]
    finally:
        for one in running:
            one.__exit__()
