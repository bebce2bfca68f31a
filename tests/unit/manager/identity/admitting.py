"""A manager that takes hosts in and puts them out, on a real bus, and who tries what credentials are good for."""

from pathlib import Path
from typing import Self

from bus_fakes import POD, authority, connect_as, manager_bus
from fakes import until

from cwdp.shared.bus.session import RefusedError
from cwdp.shared.identity.credential import Credential
from manager.identity.probe_keys import ProbeKeys
from manager.identity.service import Credentials


class Leader:
    """A manager as far as credentials go."""

    def __init__(self, url: str, path: Path, *, leads: bool = True, pod: str = POD) -> None:
        self.leads = leads
        self.notes: list[tuple[str, str]] = []
        self.bus = manager_bus(url, pod=pod)
        self.credentials = Credentials(
            authority(),
            self.bus,
            pod,
            leads=lambda: self.leads,
            note=self._note,
            keys=ProbeKeys(path / "probe_keys.json"),
            hosts=lambda: (),
            may_go_on=lambda: True,
            put_out=self.bus.documents.remove,
        )
        self.credentials.listen()

    def _note(self, host: str, kind: str, _detail: str, *, why: str | None = None) -> None:
        assert why is None
        self.notes.append((host, kind))

    async def __aenter__(self) -> Self:
        self.bus.start()
        await until(lambda: self.bus.connected)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.bus.close()


async def is_let_in(url: str, credential: Credential) -> bool:
    """Whether a server takes a credential."""
    try:
        client = await connect_as(url, credential)
    except RefusedError:
        return False
    await client.close()
    return True
