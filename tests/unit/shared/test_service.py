"""Memory of a service that works evenly: what Python keeps aside is given back now and then, and threads share the rest."""

import asyncio
import gc
import subprocess
import sys
import weakref
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


class _Cycle:
    """Garbage once nobody holds it, which only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


@asynchronous
async def test_what_has_outlived_a_collection_is_let_be_and_found_by_the_one_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "LET_BE_EVERY_S", 0.05)
    monkeypatch.setattr(service, "LOOK_AT_ALL_EVERY_S", 1.0)
    monkeypatch.setattr(service, "LOOK_AT_ALL_SHARE", 1.0)
    thresholds, held = gc.get_threshold(), [_Cycle(), _Cycle()]
    gone = [weakref.ref(each) for each in held]
    collecting = asyncio.create_task(service.collect_little())
    await asyncio.sleep(0)
    assert gc.get_freeze_count() > 0
    fresh = weakref.ref(_Cycle())
    await until(lambda: fresh() is None)
    del held[:]
    assert [each() is None for each in gone] == [False, False]
    await until(lambda: gone[0]() is None and gone[1]() is None)
    await end(collecting)
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == thresholds


@asynchronous
async def test_memory_is_given_back_however_seldom_all_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LET_BE_EVERY_S", 0.01)
    monkeypatch.setattr(service, "GIVE_BACK_EVERY_S", 0.05)
    monkeypatch.setattr(service, "LOOK_AT_ALL_EVERY_S", 3600.0)
    given_back = list[int]()
    monkeypatch.setattr(service, "give_back", lambda: given_back.append(1))
    collecting = asyncio.create_task(service.collect_little())
    await until(lambda: len(given_back) > 2)
    await end(collecting)


ARENAS = """
import ctypes, sys, threading
from cwdp.shared.service import hold_little_memory

libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(4)

def allocate():
    together.wait()
    for _ in range(100):
        libc.malloc(1000)
    together.wait()

if sys.argv[2] == "one":
    hold_little_memory()
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


LARGE = """
import ctypes
from pathlib import Path
from cwdp.shared.service import LARGE_BYTES, hold_little_memory

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

hold_little_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes, libc.mallinfo2.restype = ctypes.c_void_p, [ctypes.c_void_p], Mallinfo2
before = libc.mallinfo2().hblks
for _ in range(3):
    part = libc.malloc(2 * LARGE_BYTES)
    assert libc.mallinfo2().hblks == before + 1
    libc.free(part)
assert libc.mallinfo2().hblks == before
assert "THP_enabled:\t0" in Path("/proc/self/status").read_text()
"""


def test_what_is_large_has_pages_of_its_own_each_time_and_they_are_small() -> None:
    subprocess.run([sys.executable, "-c", LARGE], check=True)


HOLES = """
import ctypes, resource
from cwdp.shared.service import give_back

def held():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
before = held()
parts = [libc.malloc(40_000) for _ in range(1_000)]
for part in parts:
    ctypes.memset(part, 1, 40_000)
for number, part in enumerate(parts):
    if number % 20:
        libc.free(part)
kept = held() - before
give_back()
print(kept, held() - before)
"""


def test_what_is_free_between_what_stays_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], check=True, capture_output=True, text=True)
    kept, left = map(int, done.stdout.split())
    assert kept > 30_000_000
    assert left < 10_000_000


def test_threads_give_way_sooner_than_python_has_them() -> None:
    usual_s = sys.getswitchinterval()
    try:
        service.switch_often()
        assert sys.getswitchinterval() <= usual_s / 5
    finally:
        sys.setswitchinterval(usual_s)
