"""What is known about an InfiniBand lab between commands: `/run/cwdp/ib-lab/NAME/state.json`, written whole under a lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from cwdp.errors import ConfigError, LabError
from tools.ib.topology import Clos
from tools.lab.state import held, read, replace
from tools.lab.topology import check_name, check_range

RUN_ROOT = Path("/run/cwdp/ib-lab")

MOST_LMC = 7
MOST_SWITCHES, MOST_HOSTS, MOST_LIDS, MOST_PORTS = 256, 1792, 30_000, 254
"""ibsim's room; ports are those of a switch (IBTA volume 1, 14.2.5.3)."""

ENGINES_OF_ONE_LID = ("ftree",)
"""Engines of opensm that leave the subnet to another one where LMC is not 0."""


class Spec(msgspec.Struct, frozen=True):
    """What a lab is made of; `engine` as opensm names it."""

    name: str = "ib"
    leaves: int = 4
    spines: int = 4
    hosts: int = 4
    parallel: int = 1
    lmc: int = 2
    engine: str = "minhop"

    @property
    def topology(self) -> Clos:
        """Its switches, hosts and links."""
        return Clos(self.leaves, self.spines, self.hosts, self.parallel)

    def validate(self) -> None:
        """Raise `ConfigError` for what cannot be built."""
        check_name(self.name)
        check_range("--lmc", self.lmc, 0, MOST_LMC)
        check_range("--leaves", self.leaves, 1, MOST_SWITCHES - 1)
        check_range("--spines", self.spines, 1, MOST_SWITCHES - self.leaves)
        lids = (MOST_LIDS >> self.lmc) - self.leaves - self.spines
        check_range("--hosts", self.hosts, 1, min(lids, MOST_HOSTS) // self.leaves)
        check_range("--parallel", self.parallel, 1, MOST_PORTS // max(self.leaves, self.spines))
        if self.hosts + self.spines * self.parallel > MOST_PORTS:
            raise ConfigError(f"a leaf has more than {MOST_PORTS} ports", "Give less --hosts or --parallel.")
        if self.lmc and self.engine in ENGINES_OF_ONE_LID:
            raise ConfigError(
                f"opensm's {self.engine} writes no routes where LMC is not 0, and would leave it to minhop",
                "Give --lmc 0, or another --engine: minhop, updn, dnup.",
            )

    def describe(self) -> str:
        """For people."""
        links = f"{self.leaves * (self.hosts + self.spines * self.parallel)} links"
        return (
            f"{self.leaves} leaves, {self.spines} spines, {self.leaves * self.hosts} hosts, {links}, "
            f"LMC {self.lmc}, routes by {self.engine}"
        )


class Fault(msgspec.Struct):
    """What was done to a link; counters grow at the end that is named, `l1:5`, by so many in a second."""

    cut: bool = False
    width: int = 0
    speed_bps: int = 0
    growing: dict[str, dict[str, float]] = {}

    @property
    def is_any(self) -> bool:
        """Whether something is done to it now."""
        return bool(self.cut or self.width or self.speed_bps or self.growing)


class State(msgspec.Struct):
    """Everything that is not derived from the spec; `downed` counts how often each link was cut, `readers` are the nodes of its fleet's agents."""

    spec: Spec
    phase: Literal["building", "up"] = "building"
    faults: dict[str, Fault] = {}
    downed: dict[str, int] = {}
    readers: list[str] = []


def run_dir(name: str) -> Path:
    """Return the directory for a lab's state and for the files of what runs in it."""
    return RUN_ROOT / name


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lab's lock; see `tools.lab.state.held`."""
    with held(run_dir(name)):
        yield


def load(name: str) -> State | None:
    """Return a lab's state, None if there is no such lab; raise `LabError` for a file that is not a state."""
    return read(_state_path(name), State, f"cwdp lab ib down --name {name}")


def require(name: str) -> State:
    """Return the state of a lab that is up; raise `LabError` if it is not."""
    known = load(name)
    if known is None:
        others = ", ".join(sorted(path.parent.name for path in RUN_ROOT.glob("*/state.json"))) or "none"
        raise LabError(
            f"the InfiniBand lab {name!r} is not up",
            f"Run `cwdp lab ib up --name {name}` (labs that are: {others}).",
        )
    if known.phase != "up":
        raise LabError(f"the InfiniBand lab {name!r} is half built", f"Run `cwdp lab ib up --name {name}`.")
    return known


def save(known: State) -> None:
    """Replace the state file; readers see the old one or the new one."""
    replace(_state_path(known.spec.name), known)


def _state_path(name: str) -> Path:
    return run_dir(name) / "state.json"
