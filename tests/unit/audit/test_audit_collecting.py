"""Processes that read facts and hang, crash, flood or babble: the others' facts come home, and nothing is left behind."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import audit_trees
import pytest

from cwdp.audit.areas.all import AREAS
from cwdp.audit.collecting import Limits, Wanted, collect
from cwdp.shared.audit.catalogue import CATALOGUE
from cwdp.shared.audit.facts import HostFacts

AREA_S = 3.0
LIMITS = Limits(begin_s=30.0, area_s=AREA_S, all_s=90.0, end_s=5.0)
PATCHED = """
import os, signal, sys, time
from cwdp.audit import child
from cwdp.audit.areas import all as areas
own = areas.ONCE["memory"]
def memory(source, found):
{body}
    return own(source, found)
areas.ONCE["memory"] = memory
child.main()
"""
HANG = "    open({pids!r}, 'a').write(f'{{os.getpid()}}\\n')\n    time.sleep(1000)"


def child(body: str) -> tuple[str, ...]:
    return (sys.executable, "-c", PATCHED.format(body=body))


def run(tmp_path: Path, command: tuple[str, ...], limits: Limits = LIMITS) -> tuple[HostFacts, float]:
    root = tmp_path / "cloud"
    if not root.exists():
        audit_trees.write("cloud", root)
    began = time.monotonic()
    found = asyncio.run(collect(Wanted(host="a", root=str(root)), limits, command))
    return found, time.monotonic() - began


def areas_of(found: HostFacts) -> set[str]:
    return {
        CATALOGUE[f"{one.kind}.{fact}"].area for one in found.subjects for fact in (*one.facts, *one.missing)
    }


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


OTHERS = set(AREAS) - {"memory", "gpus", "ecn"}
"""Areas of which this machine has facts, with and without `memory`."""


def test_an_area_that_hangs_is_left_out(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    found, took_s = run(tmp_path, child(HANG.format(pids=str(pids))))
    assert found.troubles == {"memory": f"timed out after {AREA_S:g} s"}
    assert areas_of(found) >= OTHERS
    assert "memory" not in areas_of(found)
    assert AREA_S <= took_s < 60
    (pid,) = map(int, pids.read_text().split())
    assert not is_alive(pid)


def test_what_an_area_started_dies_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = f"    import subprocess\n    s = subprocess.Popen(['sleep', '1000'])\n    open({str(pids)!r}, 'w').write(str(s.pid))\n    s.wait()"
    found, _ = run(tmp_path, child(body))
    assert found.troubles == {"memory": f"timed out after {AREA_S:g} s"}
    pid, until = int(pids.read_text()), time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < until and "Z" not in Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.05)
    assert not is_alive(pid) or " Z " in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    os.kill(os.getpid(), signal.SIGSEGV)", "crashed: SIGSEGV"),
        ("    os._exit(7)", "crashed: exit status 7"),
        ("    raise RuntimeError('no such luck')", "crashed: RuntimeError: no such luck"),
        ("    bytearray(8 << 30)", "crashed: MemoryError: "),
        ("    os.write(1, b'babble' * 100)", "the process said more than it may"),
        ("    os.write(1, b'\\0\\0\\0\\3abc')", "what the process said is not to be understood"),
    ],
    ids=["signal", "exit", "exception", "memory", "babble", "garbled frame"],
)
def test_an_area_that_crashes_is_named(body: str, reason: str, tmp_path: Path) -> None:
    found, _ = run(tmp_path, child(body))
    assert list(found.troubles) == ["memory"]
    assert found.troubles["memory"].startswith(reason.strip())
    assert areas_of(found) >= OTHERS
    assert "memory" not in areas_of(found)


def test_a_flood_of_facts_is_cut(tmp_path: Path) -> None:
    body = "    from cwdp.audit.notes import Notes\n    return [Notes('host', '', {str(i): 'x' * 250 for i in range(60000)})]"
    found, _ = run(tmp_path, child(body))
    assert found.troubles == {"memory": "more than 8 MiB of facts"}


def test_when_every_area_hangs_the_whole_time_is_kept(tmp_path: Path) -> None:
    found, took_s = run(
        tmp_path,
        (sys.executable, "-c", "import time; time.sleep(1000)"),
        Limits(begin_s=0.5, area_s=0.5, all_s=2.0),
    )
    assert took_s < 20
    assert len(found.troubles) == len(AREAS) + 1
    assert found.troubles["subjects"] == "timed out after 0.5 s"
    assert found.troubles["rdma"] == "not read: all took 2 s"
    assert [one.kind for one in found.subjects] == ["host"]


def test_a_program_that_reads_nothing_and_ends(tmp_path: Path) -> None:
    found, _ = run(tmp_path, ("true",), Limits(area_s=5.0, all_s=60.0))
    assert set(found.troubles.values()) == {"crashed: exit status 0"}


def test_a_process_that_ignores_signals_is_killed(tmp_path: Path) -> None:
    ignored = "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(1000)"
    found, _ = run(tmp_path, child(ignored))
    assert list(found.troubles) == ["memory"]


def test_a_cancelled_collection_leaves_no_process(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    root = audit_trees.write("cloud", tmp_path / "cloud")

    async def cancelled() -> None:
        task = asyncio.create_task(
            collect(Wanted(root=str(root)), LIMITS, child(HANG.format(pids=str(pids))))
        )
        await asyncio.to_thread(wait_for, pids)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not is_alive(int(pids.read_text()))


def test_the_loop_is_not_blocked_meanwhile(tmp_path: Path) -> None:
    root = audit_trees.write("h100", tmp_path / "h100")

    async def late() -> float:
        task = asyncio.create_task(collect(Wanted(root=str(root))))
        worst = 0.0
        while not task.done():
            began = time.monotonic()
            await asyncio.sleep(0.01)
            worst = max(worst, time.monotonic() - began)
        return worst

    assert asyncio.run(late()) < 2.0
    assert signal.getsignal(signal.SIGCHLD) in (signal.SIG_DFL, None)
