"""What a bucket of one key costs its server, which keeps the block in memory that it writes to."""

from pathlib import Path

import pytest
from asynchronous import asynchronous
from bus_fakes import bus_server, connect_as_manager

from cwdp.shared.bus.buckets import ONE_KEY_BYTES, OneKey

pytestmark = pytest.mark.needs("nats-server")

VALUE = bytes(1_000)


@asynchronous
async def test_what_was_replaced_goes_soon(tmp_path: Path) -> None:
    async with bus_server(tmp_path) as server:
        client = await connect_as_manager(server.url)
        bucket, revision = OneKey("some"), 0
        for _ in range(3 * ONE_KEY_BYTES // len(VALUE)):
            revision = await bucket.replace(client, "key", VALUE, revision=revision)
        assert await bucket.read(client, "key") == (revision, VALUE)
        await client.close()
    assert _stored_bytes(tmp_path) < ONE_KEY_BYTES


def _stored_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*.blk"))
