"""Memory of a service that works evenly: what Python keeps aside is given back now and then, and threads share the rest."""

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

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


ARENAS = """
import ctypes, sys, threading
from cwdp.shared.service import share_arena

libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(4)

def allocate():
    together.wait()
    for _ in range(100):
        libc.malloc(1000)
    together.wait()

if sys.argv[2] == "one":
    share_arena()
threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def test_threads_take_memory_from_one_place(tmp_path: Path) -> None:
    arenas = {}
    for how in ("one", "several"):
        told = tmp_path / how
        subprocess.run([sys.executable, "-c", ARENAS, str(told), how], check=True)
        arenas[how] = told.read_text().count("<heap nr=")
    assert arenas["one"] == 1 < arenas["several"]


READS = """
import sys, threading, time, zlib
from cwdp.shared.service import switch_often

message = zlib.compress(bytes(1_000))

def work():
    while reads:
        sum(range(100))

if sys.argv[1] == "often":
    switch_often()
reads, count = True, 0
worker = threading.Thread(target=work)
worker.start()
until_s = time.monotonic() + 1.0
while time.monotonic() < until_s:
    zlib.decompressobj().decompress(message)
    count += 1
reads = False
worker.join()
print(count)
"""


def test_a_loop_reads_beside_a_thread_that_works() -> None:
    counts = {
        how: int(subprocess.run([sys.executable, "-c", READS, how], check=True, capture_output=True).stdout)
        for how in ("often", "seldom")
    }
    assert counts["often"] > 2 * counts["seldom"]
