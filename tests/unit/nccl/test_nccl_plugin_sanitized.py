"""Many threads, children, agents that come and go: without a word of ASan, UBSan or TSan."""

from pathlib import Path

import need
import pytest

from tools.nccl import Built, FakeAgent, Player, build


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def sanitized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    need.installed("gcc")
    return build(tmp_path_factory.mktemp("sanitized"), request.param)


@pytest.mark.parametrize("version", [1, 3, 6])
def test_without_a_word(sanitized: Built, tmp_path: Path, version: int) -> None:
    agent = FakeAgent(tmp_path / "a")
    with Player(sanitized, version, agent.path) as player:
        player.tell("init 1")
        agent.accept()
        player.answer()
        for line in ("threads 4 200 2 4", "wrong", "p2p 20 2 2", "hold 100", "finalize", "reopen", "init 2"):
            player.do(line)
        agent.close()
        assert player.do("threads 4 2000 2 4") == 0
        with FakeAgent(agent.path) as newer:
            player.tell("fork")
            newer.accept()
            assert player.answer() == ["child", "0"]
            player.do("init 3")
            newer.accept()
            assert player.do("threads 4 200 2 4") == 0
            assert player.end() == (0, "")
