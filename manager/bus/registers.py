"""The registers of a pod's lease on the bus: three where the bus is a cluster, each kept by one server and no two by the same.

None has copies, for a stream of one copy needs no election: what its server holds is read and replaced while that server runs,
whoever leads the others, and as soon as it runs again. Who makes one names the server that is to keep it; where servers
have been configured without a tag of their name, nats-server 2.9.10 chooses the one with most room, and as each register reserves
some, that is another one each time if the servers keep the same otherwise. Of two that make one at the same time, the server that
leads takes both for the same place.
"""

import logging
from collections.abc import Sequence

import msgspec
import nats.js.errors
from nats.aio.client import Client

from cwdp.shared.bus.buckets import KNOWN_S, OneKey, is_clustered
from cwdp.shared.bus.connection import Bus
from manager.bus.pods import bucket_of
from manager.bus.quorum import Record

BUCKET = "cwdp-lease"
KEY = "leader"
IN_CLUSTER = 3

NO_PLACE, AWAY = 10005, "offline"
"""What the server says where none has a tag, and what besides where one that does not answer may have it."""

OFFLINE = 10118
"""What the server says of a stream whose server does not answer."""

_log = logging.getLogger("cwdp.manager.lease")


def buckets(pod: str, registers: int) -> list[str]:
    """The names of the buckets that so many registers of a pod are."""
    if registers == 1:
        return [bucket_of(BUCKET, pod)]
    return [bucket_of(f"{BUCKET}-{number}", pod) for number in range(1, registers + 1)]


class Registers:
    """Those of a pod, by connections to the servers of its bus.

    Args:
        buses: the connections, each to another server where several are known.
    """

    def __init__(self, buses: Sequence[Bus]) -> None:
        self._buses = buses
        self._of: list[OneKey] = []

    def __len__(self) -> int:
        return len(self._of)

    def fit(self, client: Client) -> None:
        """Have as many as the bus of a connection asks for."""
        count = IN_CLUSTER if is_clustered(client) else 1
        if count != len(self._of):
            self._of = [OneKey(name) for name in buckets(self._buses[0].pod, count)]

    async def read(self, client: Client, number: int) -> tuple[int, Record | None]:
        """The revision and the record that one holds, None for what is none.

        Raises:
            nats.errors.Error, OSError, TimeoutError: it does not answer, or is not there.
        """
        revision, data = await self._of[number].read(client, KEY)
        try:
            return revision, msgspec.json.decode(data, type=Record)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return revision, None

    async def replace(self, client: Client, number: int, record: Record, *, revision: int) -> int:
        """Have a record in place of what one held at `revision`; the new revision.

        Raises:
            Conflict: it holds something else by now.
            nats.errors.Error, OSError, TimeoutError: it may have been replaced or not.
        """
        return await self._of[number].replace(client, KEY, msgspec.json.encode(record), revision=revision)

    async def make(self, client: Client, number: int) -> None:
        """Make one unless it is there, on a server that keeps none yet; those before it come first.

        Raises:
            nats.errors.Error, OSError, TimeoutError: it is not known whether it is there, or it cannot be made now.
        """
        homes = [await self._home(client, each) for each in range(len(self._of))]
        if homes[number] is not None or None in homes[:number]:
            return
        if len(self._of) == 1:
            await self._of[0].make(client)
            return
        names = {_server(bus.session) for bus in self._buses if bus.session is not None}
        free = sorted(names.difference(home for home in homes if home))
        if len(self._buses) >= IN_CLUSTER and not free:
            return
        await self._make(client, number, free[0] if free else None)

    async def _make(self, client: Client, number: int, server: str | None) -> None:
        try:
            await self._of[number].make(client, server)
        except nats.js.errors.APIError as error:
            if server is None or error.err_code != NO_PLACE or AWAY in (error.description or ""):
                raise
            _log.warning(
                "no bus server has the tag %s: one with room keeps %s", server, self._of[number].stream
            )
            await self._of[number].make(client)

    async def _home(self, client: Client, number: int) -> str | None:
        """Which server keeps one; None where it is not there, nothing where that is not known though it is there."""
        try:
            info = await client.jsm(timeout=KNOWN_S).stream_info(self._of[number].stream)
        except nats.js.errors.NotFoundError:
            return None
        except nats.js.errors.ServerError as error:
            if error.err_code == OFFLINE:
                return ""
            raise
        return (info.cluster.leader if info.cluster else None) or ""


def _server(client: Client) -> str:
    return str(client._server_info.get("server_name", ""))  # noqa: SLF001 - what the server said of itself
