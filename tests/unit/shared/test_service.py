"""Memory of a service that works evenly: what Python keeps aside is given back now and then."""

import asyncio
import gc
import sys

import pytest
from asynchronous import asynchronous
from fakes import until

from cwdp.shared import service
from cwdp.shared.tasks import end

TUPLES = 1_500


def _leave_tuples() -> None:
    """A tuple of unknown length is made of one of another length, so each call leaves one more on a free list."""
    for _ in range(TUPLES):
        tuple(number for number in range(17))


@asynchronous
async def test_tuples_that_were_freed_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "COLLECT_EVERY_S", 0.1)
    collecting = asyncio.create_task(service.collect_in_full())
    await asyncio.sleep(0)
    assert gc.get_freeze_count() > 0
    before = sys.getallocatedblocks()
    _leave_tuples()
    assert sys.getallocatedblocks() > before + TUPLES // 2
    await until(lambda: sys.getallocatedblocks() < before + TUPLES // 2)
    await end(collecting)
    assert gc.get_freeze_count() == 0
