"""What each process holds: memory, files, threads; and what lies on disk, in bpffs and in the kernel's list of namespaces."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tools.lab.network import netns
from tools.soak.stage import Stage
from tools.soak.watches.looking import Watch

EVERY_S = 5.0
BPFFS = Path("/sys/fs/bpf/cwdp")
DATABASE = "sqlite"
HELPER = "cwdp.agent."
QUANTITIES = ("rss_bytes", "private_bytes", "open_files", "threads")
_KB = 1024
_FIELDS = {"Rss": "rss_bytes", "Private_Clean": "private_bytes", "Private_Dirty": "private_bytes"}

Series = list[tuple[float, float]]


@dataclass(frozen=True)
class Holder:
    """A process: what it does, and which one of those it is."""

    role: str
    which: str


class HoldingsWatch(Watch):
    """Samples all processes of a fleet.

    Attributes:
        processes: by quantity and role, for each process (`NODE:PID`) what it held when, since the start.
        stores: bytes on disk by what they are of, when.
        pins, namespaces: how many there were, when.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(EVERY_S)
        self._stage = stage
        self._cookies = [netns.cookie(host.netns) for host in stage.lab.hosts]
        self.processes: dict[tuple[str, str], dict[str, Series]] = defaultdict(lambda: defaultdict(list))
        self.stores: dict[str, Series] = defaultdict(list)
        self.pins: Series = []
        self.namespaces: Series = []

    def look(self) -> None:
        """Sample them."""
        for holder, pid in self._all():
            with suppress(OSError, ValueError):
                held, now_s = _held(pid), self._stage.now_s
                for quantity in QUANTITIES:
                    self.processes[quantity, holder.role][f"{holder.which}:{pid}"].append(
                        (now_s, held[quantity])
                    )
        now_s = self._stage.now_s
        for what, size in _stores(self._stage).items():
            self.stores[what].append((now_s, size))
        self.pins.append((now_s, sum(_count(BPFFS / str(cookie)) for cookie in self._cookies)))
        self.namespaces.append((now_s, len(_namespaces(self._stage.lab.name))))

    def _all(self) -> Iterator[tuple[Holder, int]]:
        fleet, topology = self._stage.fleet, self._stage.lab.topology
        for role, names in (
            ("manager", topology.managers),
            ("bus server", topology.servers),
            ("agent", topology.hosts),
        ):
            for name in names:
                pid = fleet.process(name).pid
                yield Holder(role, name), pid
                for child in _children(pid):
                    yield Holder(f"{role}'s {_role(child)}", name), child


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _role(pid: int) -> str:
    """Of a helper, by the module that it runs."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        module = next((word for word in words if word.startswith(HELPER)), words[0])
        return module.removeprefix(HELPER).partition(".")[0]
    return "helper"


def _held(pid: int) -> Mapping[str, float]:
    held: dict[str, float] = defaultdict(float)
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, value = line.partition(":")
        if name in _FIELDS:
            held[_FIELDS[name]] += int(value.split()[0]) * _KB
    held["open_files"] = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names alone are wanted
    held["threads"] = len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - as above
    return held


def _stores(stage: Stage) -> dict[str, float]:
    """What all managers and servers keep, by what it is, and what all processes have logged."""
    topology, sizes = stage.lab.topology, defaultdict[str, float](float)
    for name in topology.managers:
        for path in _files(stage.lab.run_dir / name / "history"):
            sizes[f"history {path.name if DATABASE in path.name else 'rings'}"] += _size(path)
    for name in topology.servers:
        for path in _files(stage.lab.run_dir / name / "jetstream"):
            parts = path.parts
            stream = parts[parts.index("streams") + 1] if "streams" in parts else "others"
            sizes[f"stream {stream}"] += _size(path)
    for path in stage.lab.run_dir.glob("*.log"):
        sizes["logs"] += _size(path)
    return sizes


def _files(directory: Path) -> list[Path]:
    with suppress(OSError):
        return [path for path in directory.rglob("*") if path.is_file()]
    return []


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_blocks * 512
    return 0


def _count(directory: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(directory))


def _namespaces(lab: str) -> list[str]:
    return [path.name for path in netns.RUN_DIR.glob(f"cw-{lab}-*")]
