"""All functions, with the shim and the plug-in: without a word of ASan, UBSan or TSan."""

from pathlib import Path

import need
import pytest
from collective_world import Run, World, built

from tools.collective import Collective
from tools.nccl import FakeAgent

KB = 1024
FUNCTIONS = ("all-reduce", "all-to-all", "send")
MANY = ("--channels", "2", "--qps", "2", "--split", "--adaptive-routing")


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    need.installed("gcc")
    need.installed(Path("/usr/include/infiniband/verbs.h"))
    return built(tmp_path_factory.mktemp("sanitized"), request.param)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_without_a_word(sanitized: World, tmp_path: Path, agent: FakeAgent, function: str) -> None:
    run = Run(sanitized, tmp_path)
    what = Collective(function, bytes=64 * KB, chunk_bytes=16 * KB, iterations=5, more=MANY)
    truths = run.to_the_end(what, 2, run.observed(agent.path))
    assert [truth.begin["mask"] for truth in truths] == [30, 30]
