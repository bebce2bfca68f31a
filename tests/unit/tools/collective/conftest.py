"""The program, the shim, the plug-in and libraries whose devices are none, built once; and how ranks are run with them."""

from collections.abc import Iterator
from pathlib import Path

import need
import pytest
from collective_world import Run, World, built

from tools.nccl import FakeAgent


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    need.installed("gcc")
    need.installed(Path("/usr/include/infiniband/verbs.h"))
    return built(tmp_path_factory.mktemp("collective"))


@pytest.fixture
def run(world: World, tmp_path: Path) -> Run:
    return Run(world, tmp_path)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    with FakeAgent(tmp_path / "a") as agent:
        yield agent
