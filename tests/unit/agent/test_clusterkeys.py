"""A host asks for the cluster's keys now and then, and at once when it is back on the bus."""

import asyncio
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from fakes import until

from cwdp.agent import clusterkeys
from cwdp.agent.clusterkeys import ClusterKeys
from cwdp.shared.identity.probe_keys import Key, KeyFile, KeysAnswer, read_keys

OLD = KeyFile(send=1, key=[Key(1, "ab" * 16)])
NEW = KeyFile(send=2, key=[Key(2, "cd" * 16)])


class Leader:
    """Answers as a bus does; cut off it does not."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.keys, self.is_there = OLD, True

    async def ask(self, _subject: str, _kind: str, question: Any, _of: object) -> KeysAnswer:
        self.asked.append(question.have)
        if not self.is_there:
            raise nats.errors.TimeoutError
        has_them = question.have == self.keys.fingerprint
        return KeysAnswer(host="h1", keys=None if has_them else self.keys, again_s=3600)


def test_who_is_back_on_the_bus_has_the_keys_that_it_missed_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusterkeys, "NO_ANSWER_S", 3600.0)
    monkeypatch.setattr(clusterkeys, "FIRST_INTERVAL_S", 0.05)
    path = tmp_path / "keys.toml"

    async def play() -> None:
        leader = Leader()
        keys = ClusterKeys(leader, "h1", "main", path)  # type: ignore[arg-type]
        task = asyncio.create_task(keys.run(lambda: read_keys(path) if path.exists() else OLD, pytest.fail))
        await until(lambda: len(leader.asked) == 1)
        leader.is_there = False
        keys.ask_soon()
        await until(lambda: len(leader.asked) == 2)
        leader.is_there, leader.keys = True, NEW
        keys.ask_soon()
        await until(lambda: path.exists() and read_keys(path) == NEW)
        assert len(leader.asked) == 3
        task.cancel()

    asyncio.run(play())
