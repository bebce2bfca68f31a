"""Managers and bus servers that are killed, stand still, are cut off or away for long; keys that are rotated."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tools.lab import partition
from tools.soak.schedule import LEADER
from tools.soak.stage import Stage
from tools.soak.troubles import ABSENCE, Trouble


@contextmanager
def killed(stage: Stage, trouble: Trouble) -> Iterator[None]:
    """End its process at once; the fleet begins another."""
    stage.fleet.process(_named(stage, trouble)).kill()
    yield


@contextmanager
def stopped(stage: Stage, trouble: Trouble) -> Iterator[None]:
    """Have it and all that it has started stand still."""
    group = stage.fleet.process(_named(stage, trouble)).pid
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGCONT)


@contextmanager
def cut_off(stage: Stage, trouble: Trouble) -> Iterator[None]:
    """Take the management network from it."""
    name = _named(stage, trouble)
    partition.isolate(stage.lab.name, name)
    try:
        yield
    finally:
        partition.rejoin(stage.lab.name, name)


@contextmanager
def away(stage: Stage, trouble: Trouble) -> Iterator[None]:
    """End it, and begin it again at the end."""
    stage.fleet.stop(trouble.target)
    try:
        yield
    finally:
        if not stage.stop.is_set():
            stage.fleet.start(trouble.target)


@contextmanager
def _rotated(stage: Stage, _: Trouble) -> Iterator[None]:
    stage.change(lambda leader: leader.put("/v1/credential/keys", {}))
    yield


def _named(stage: Stage, trouble: Trouble) -> str:
    if trouble.target != LEADER:
        return trouble.target
    return stage.leading() or stage.fleet.managers[0]


ACTS = {
    "manager_killed": killed,
    "manager_stopped": stopped,
    "manager_cut_off": cut_off,
    "server_killed": killed,
    "server_stopped": stopped,
    "server_cut_off": cut_off,
    "keys_rotated": _rotated,
    ABSENCE: away,
}
