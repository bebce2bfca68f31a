"""A state directory is one manager's; the next one knows who had it, and takes that one's lease at once."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from asynchronous import asynchronous
from bus_fakes import bus_server, manager_bus
from fakes import until

from cwdp.errors import ManagerError
from cwdp.shared.tasks import end
from manager.bus.lease import LEASE_S, Claim, Lease
from manager.bus.state_lock import FILE, StateLock


def test_the_next_one_knows_who_had_it(tmp_path: Path) -> None:
    with StateLock(tmp_path, "a") as first:
        assert first.before is None
    with StateLock(tmp_path, "b") as second:
        assert second.before == "a"
    with StateLock(tmp_path, "c") as third:
        assert third.before == "b"


def test_two_at_once_are_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with StateLock(tmp_path, "a"):
        for _ in range(2):
            with pytest.raises(ManagerError, match="another manager runs with the state directory"):
                StateLock(tmp_path, "b").__enter__()
    with StateLock(tmp_path, "c") as next_one:
        assert next_one.before == "a"


@pytest.mark.parametrize(
    "found",
    [
        b"",
        b"\xff",
        b"{}",
        b'{"manager": 3, "boot_id": ""}',
        b'{"manager": "a", "boot_id": "of another boot"}',
    ],
)
def test_a_file_that_tells_of_nobody_here(tmp_path: Path, found: bytes) -> None:
    """Empty after a crash, damaged, copied from another machine, or written before a reboot."""
    (tmp_path / FILE).write_bytes(found)
    with StateLock(tmp_path, "b") as lock:
        assert lock.before is None
    with StateLock(tmp_path, "c") as lock:
        assert lock.before == "b"


def test_a_longer_name_leaves_nothing_behind(tmp_path: Path) -> None:
    for name in ("a" * 100, "b"):
        with StateLock(tmp_path, name):
            pass
    assert msgspec.json.decode((tmp_path / FILE).read_bytes())["manager"] == "b"


def test_where_it_cannot_be_written_the_next_step_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManagerError, match="cannot lock") as raised:
        StateLock(tmp_path / "not there", "a").__enter__()
    assert "--state-dir" in (raised.value.hint or "")


def test_a_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(ManagerError, match="No locks available"):
        StateLock(tmp_path, "a").__enter__()


@asynchronous
@pytest.mark.needs("nats-server")
async def test_the_lease_of_a_manager_that_runs_no_more_is_taken_at_once_and_of_no_other(
    tmp_path: Path,
) -> None:
    async with bus_server(tmp_path / "nats") as server:
        leases, tasks = [], []
        for name, gone in (("a", None), ("b", "x"), ("c", "a")):
            bus = manager_bus(server.url, name=name)
            bus.start()
            lease = Lease([bus], Claim(manager=name, name="m"), lambda _leads: None)
            lease.gone = gone
            leases.append((bus, lease))
        first, other, next_one = (lease for _, lease in leases)
        tasks.append(asyncio.create_task(first.run()))
        await until(lambda: first.leads)
        await end(tasks.pop())
        tasks.append(asyncio.create_task(other.run()))
        await asyncio.sleep(LEASE_S / 3)
        assert not other.leads
        tasks.append(asyncio.create_task(next_one.run()))
        await until(lambda: next_one.leads, LEASE_S / 3)
        assert next_one.epoch > first.epoch
        await asyncio.sleep(LEASE_S)
        assert next_one.leads
        assert not other.leads
        await end(*tasks)
        for bus, _ in leases:
            await bus.close()
