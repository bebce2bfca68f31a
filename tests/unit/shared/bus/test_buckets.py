"""What buckets cost their server, which keeps the block of each in memory that it writes to, and what they leave to others."""

from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import bus_server, connect_as_manager
from nats.aio.client import Client

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS, ONE_KEY_BYTES, OneKey, maker
from cwdp.shared.bus.desired import stored
from manager.bus import server_config, state
from manager.history.service import STREAM_MOST_BYTES
from manager.identity import registry

pytestmark = pytest.mark.needs("nats-server")

VALUE = bytes(1_000)


@asynchronous
async def test_what_was_replaced_goes_soon(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        client = await connect_as_manager(server.url)
        bucket, revision = OneKey("some"), 0
        await bucket.make(client)
        for _ in range(3 * ONE_KEY_BYTES // len(VALUE)):
            revision = await bucket.replace(client, "key", VALUE, revision=revision)
        assert await bucket.read(client, "key") == (revision, VALUE)
        await client.close()
    assert _stored_bytes(tmp_path) < ONE_KEY_BYTES


@asynchronous
async def test_who_leads_goes_on_where_the_bus_is_full_of_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(server_config, "STORE_BYTES", 3 << 19)
    async with bus_server(tmp_path) as server:
        client = await connect_as_manager(server.url)
        lease, revision = OneKey("lease"), 0
        await lease.make(client)
        revision = await lease.replace(client, "key", VALUE, revision=revision)
        with pytest.raises(JETSTREAM_ERRORS):
            await _fill(client)
        await lease.replace(client, "key", VALUE, revision=revision)
        await client.close()


async def _fill(client: Client) -> None:
    for number in range(20):
        await stored.bucket().replace(client, f"pod.h{number}", bytes(100_000), revision=0)


def test_no_two_makers_are_alike() -> None:
    assert len({maker() for _ in range(1_000)}) == 1_000


def test_all_buckets_together_leave_room() -> None:
    bounds = (stored.MOST_BYTES, state.MOST_BYTES, registry.MOST_BYTES, STREAM_MOST_BYTES, ONE_KEY_BYTES)
    assert 1.5 * sum(bounds) < server_config.STORE_BYTES


def _stored_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*.blk"))
