"""A manager that runs in the test's own loop, with a bus server of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from bus_fakes import save_authority

from manager.config import ManagerConfig
from manager.service import Manager


def config_of(tmp_path: Path, port: int) -> ManagerConfig:
    """Of a manager that keeps all below a folder and whose bus listens at a port."""
    return ManagerConfig(
        authority=save_authority(tmp_path / "state"),
        bus_listen=f"127.0.0.1:{port}",
        page="",
        state_dir=str(tmp_path / "state"),
        socket=str(tmp_path / "sock"),
    )


@contextlib.asynccontextmanager
async def running(config: ManagerConfig) -> AsyncIterator[Manager]:
    """Stopped on exit."""
    manager = Manager(config)
    task = asyncio.create_task(manager.run())
    try:
        yield manager
    finally:
        manager.stop()
        await task
