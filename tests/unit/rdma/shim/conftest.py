"""Shim, fakes and programs, built once; an agent, and programs that have its table."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import need
import pytest
from shim_programs import TABLE, Start

from tools.shim import Built, FakeAgent, Program, build
from tools.shim.agent import Peer


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    need.installed("gcc")
    need.installed(Path("/usr/include/infiniband/verbs.h"))
    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    with FakeAgent(tmp_path / "a") as agent:
        yield agent


@pytest.fixture
def start(built: Built, agent: FakeAgent) -> Iterator[Start]:
    """Programs that have opened a device; with the shim, and with a table unless it is None."""
    with ExitStack() as stack:

        def started(
            table: bytes | None = TABLE, device: str = "fake_0", environment: Mapping[str, str] | None = None
        ) -> tuple[Program, Peer]:
            wanted = {"LD_PRELOAD": str(built.shim), "CWDP_VERBS": str(agent.path)} | dict(environment or {})
            program = stack.enter_context(Program(built.linked, built, wanted))
            if device.startswith("mlx5"):
                assert program.do("load libmlx5.so.1")[0] == 0
            program.tell(f"open {device}")
            peer = agent.accept()
            if table is not None:
                peer.give(table)
                peer.settle()
            program.answer()
            return program, peer

        yield started
