"""What the bus keeps for each host, looked at while leaders change."""

import asyncio
import threading
from types import TracebackType
from typing import Self

import msgspec

from cwdp.shared.bus.buckets import JETSTREAM_ERRORS
from cwdp.shared.bus.desired import stored
from cwdp.shared.bus.messages import Desired
from cwdp.shared.bus.sealing import LeaderSeal
from cwdp.shared.bus.subjects import document_key
from manager.bus.connection import manager_bus
from manager.identity.authority import DEFAULT_POD, Authority
from tools.lab import Lab
from tools.lab.network import netns

EVERY_S = 0.05


class StoredDocuments:
    """Looks at the documents of all hosts again and again, from the management network, as a context.

    Attributes:
        epochs: of each host's document, by its revision.
    """

    def __init__(self, lab: Lab, bus: str) -> None:
        self.epochs: dict[str, dict[int, int]] = {host.name: {} for host in lab.hosts}
        self._authority = Authority.load(lab.run_dir / "authority")
        self._seal = LeaderSeal(self._authority.control_key)
        self._lab, self._bus = lab, manager_bus(bus, self._authority, name="documents")
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def newest_epoch(self) -> int:
        """Of all documents, as last seen."""
        return max((epoch for found in self.epochs.values() for epoch in found.values()), default=0)

    def went_back(self) -> list[str]:
        """Hosts of which a later document was an earlier leader's."""
        return [
            host
            for host, found in self.epochs.items()
            if (epochs := [found[revision] for revision in sorted(found)]) != sorted(epochs)
        ]

    def _run(self) -> None:
        netns.enter_for_good(self._lab.mgmt_netns)
        asyncio.run(self._look())

    async def _look(self) -> None:
        self._bus.start()
        bucket = stored.bucket()
        while not self._done.is_set():
            for host, found in self.epochs.items():
                client = self._bus.session
                if client is None:
                    continue
                try:
                    async with asyncio.timeout(1.0):
                        revision, data = await bucket.read(client, document_key(DEFAULT_POD, host))
                    found[revision] = self._seal.opened(stored.KIND, Desired, data).epoch
                except (*JETSTREAM_ERRORS, msgspec.DecodeError):
                    continue
            await asyncio.sleep(EVERY_S)
        await self._bus.close()
