"""Ranks of a collective on this host, by a libibverbs that writes between processes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tools.collective import Collective, Rank, Ranks, Truth, build, running
from tools.free_ports import free_port
from tools.nccl import build as build_nccl
from tools.shim import build as build_shim

TIMEOUT_S = 60.0


class World(NamedTuple):
    """What was built: the program, the folder with the fake libibverbs, the shim and the plug-in."""

    program: Path
    fakes: Path
    shim: Path
    plugin: Path


def built(folder: Path, sanitizer: str | None = None) -> World:
    """Build it, all with a sanitizer if one is given."""
    verbs = build_shim(folder / "shim", sanitizer)
    plugin = build_nccl(folder / "nccl", sanitizer).library
    return World(build(folder / "collective", sanitizer), verbs.fakes, verbs.shim, plugin)


class Run:
    """Runs ranks; their files are in a folder."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self._folder = world, folder
        self.port = free_port()

    @contextmanager
    def started(
        self,
        what: Collective,
        ranks: int = 2,
        environment: Mapping[str, str] | None = None,
        device: str = "fake_0",
    ) -> Iterator[Ranks]:
        """Ranks that have been started."""
        common = {"LD_LIBRARY_PATH": str(self.world.fakes), "CWDP_VERBS": str(self._folder / "none")}
        each = Rank(device, 0, common | dict(environment or {}))
        with running(self.world.program, what, [each] * ranks, f"127.0.0.1:{self.port}", self._folder) as job:
            yield job

    def to_the_end(
        self, what: Collective, ranks: int = 2, environment: Mapping[str, str] | None = None
    ) -> list[Truth]:
        """What ranks say, all of which must come to a good end."""
        with self.started(what, ranks, environment) as job:
            truths = job.finish(TIMEOUT_S)
        assert [(truth.status, truth.error) for truth in truths] == [(0, "")] * ranks
        assert [truth.end["wrong"] for truth in truths] == [0] * ranks
        return truths

    def observed(self, socket_path: Path, **more: str) -> dict[str, str]:
        """The environment of a program that has loaded the shim and the plug-in."""
        return {
            "NCCL_IBVERBS_LIB": str(self.world.shim),
            "NCCL_PROFILER_PLUGIN": str(self.world.plugin),
            "CWDP_NCCL": str(socket_path),
        } | more
