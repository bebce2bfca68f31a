"""The plug-in and the program that plays NCCL, built once; an agent that takes rings."""

from collections.abc import Iterator
from pathlib import Path

import need
import pytest

from tools.nccl import Built, FakeAgent, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    need.installed("gcc")
    return build(tmp_path_factory.mktemp("nccl"))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    with FakeAgent(tmp_path / "a") as agent:
        yield agent
