"""Audits on the bus: each in pieces, and one key that says which there are.

An audit is there once that key names it, so one that was written in part is not. The key is replaced by compare-and-set.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec import Struct
from nats.aio.client import Client

from cwdp.errors import ManagerError
from cwdp.shared.bus.buckets import Bucket
from manager.audit.service.kept import KEPT, Packed
from manager.bus.pods import bucket_of

BUCKET = "cwdp-audits"
"""The first pod's; see `manager.bus.pods`."""

MOST_BYTES = 1 << 29
ROOM_BYTES = MOST_BYTES * 3 // 4
"""What all audits may have; the rest is for one that comes before others go, and for what belongs to none."""

LARGEST_BYTES = MOST_BYTES // 4
PIECE_BYTES = 1 << 18
INDEX = "index"

_encoder = msgspec.msgpack.Encoder()


class Entry(Struct, frozen=True, kw_only=True):
    """An audit that is there.

    Attributes:
        number: which.
        ended_s: Unix time.
        stamp: names who wrote its pieces, and at which try.
        digest: as of `Packed`.
        verdicts_bytes, facts_bytes: of its two parts, one after the other in the pieces.
    """

    number: int
    ended_s: float
    stamp: str
    digest: str
    verdicts_bytes: int
    facts_bytes: int

    @property
    def size_bytes(self) -> int:
        """Of both parts."""
        return self.verdicts_bytes + self.facts_bytes

    @property
    def prefix(self) -> str:
        """Of the keys of its pieces."""
        return f"{self.number}.{self.stamp}"

    def pieces(self) -> list[str]:
        """The keys of its pieces, in order."""
        return [f"{self.prefix}.{place}" for place in range(-(-self.size_bytes // PIECE_BYTES))]


class Index(Struct, frozen=True, kw_only=True):
    """Which there are, in order.

    Attributes:
        epoch: of the leader that said so.
    """

    epoch: int = 0
    audits: list[Entry] = []

    @property
    def last(self) -> Entry | None:
        """The newest."""
        return self.audits[-1] if self.audits else None

    def with_one(self, entry: Entry) -> "Index":
        """With one more, without the oldest that there is no room for beside it."""
        kept = [entry]
        for each in reversed(self.audits):
            if len(kept) == KEPT or sum(one.size_bytes for one in kept) + each.size_bytes > ROOM_BYTES:
                break
            kept.append(each)
        return msgspec.structs.replace(self, audits=kept[::-1])


class Store:
    """The audits of one pod.

    All raise nats.errors.Error and OSError as in `JETSTREAM_ERRORS`.

    Args:
        pod: its name.
    """

    def __init__(self, pod: str) -> None:
        self._bucket = Bucket(bucket_of(BUCKET, pod), max_bytes=MOST_BYTES)

    async def make(self, client: Client) -> None:
        """Have a place for them, if there is none."""
        await self._bucket.open(client)

    def close(self) -> None:
        """Make the place anew, if need be: it may have been taken away."""
        self._bucket.close()

    async def is_there(self, client: Client) -> bool:
        """Whether some leader has made a place for them."""
        return await self._bucket.is_there(client)

    async def index(self, client: Client, *, latest: bool = False) -> tuple[int, Index]:
        """Which there are, and the revision of that; 0 for nothing.

        Args:
            client: by which connection.
            latest: ask who leads the copies; see `Bucket.read`.

        Raises:
            ManagerError: what is there cannot be read.
        """
        revision, data = await self._bucket.read(client, INDEX, latest=latest)
        try:
            return revision, msgspec.msgpack.decode(data, type=Index) if data else Index()
        except msgspec.DecodeError as error:
            raise ManagerError(f"which audits the bus has cannot be read: {error}") from error

    async def replace(self, client: Client, index: Index, revision: int) -> int:
        """Have others there; the new revision.

        Raises:
            Conflict: there are others than at `revision` by now.
        """
        return await self._bucket.replace(client, INDEX, _encoder.encode(index), revision=revision)

    async def write(
        self, client: Client, entry: Entry, packed: Packed, *, may_go_on: Callable[[], bool]
    ) -> bool:
        """Write the pieces of one that is not there yet; False where it was given up."""
        data = packed.verdicts + packed.facts
        for place, key in enumerate(entry.pieces()):
            if not may_go_on():
                return False
            piece = data[place * PIECE_BYTES : (place + 1) * PIECE_BYTES]
            await self._bucket.replace(client, key, piece, revision=0)
        return True

    async def read(self, client: Client, entry: Entry) -> Packed | None:
        """One that is there; None where some of it is not, as it is being removed."""
        pieces = [(await self._bucket.read(client, key))[1] for key in entry.pieces()]
        data = b"".join(pieces)
        packed = Packed(data[: entry.verdicts_bytes], data[entry.verdicts_bytes :])
        return packed if packed.digest == entry.digest else None

    async def sweep(self, client: Client, index: Index, given_up: Collection[str] = ()) -> None:
        """Remove pieces of no audit that is there, but for those of later ones than the last: who leads may be writing them.

        Args:
            client: by which connection.
            index: which there are.
            given_up: prefixes of others that are to go, as who asks has written them and goes on with none.
        """
        wanted = {entry.prefix for entry in index.audits}
        last = 0 if index.last is None else index.last.number
        prefixes = {key.rpartition(".")[0] for key in await self._bucket.keys(client) if key != INDEX}
        for prefix in sorted(prefixes - wanted):
            if prefix in given_up or int(prefix.partition(".")[0]) <= last:
                await self._bucket.purge(client, f"{prefix}.*")


def entry_of(number: int, ended_s: float, stamp: str, packed: Packed) -> Entry:
    """That of an audit which is to be written.

    Raises:
        ManagerError: it is too large.
    """
    entry = Entry(
        number=number,
        ended_s=ended_s,
        stamp=stamp,
        digest=packed.digest,
        verdicts_bytes=len(packed.verdicts),
        facts_bytes=len(packed.facts),
    )
    if entry.size_bytes > LARGEST_BYTES:
        raise ManagerError(f"it has {entry.size_bytes:,} bytes, and the bus takes {LARGEST_BYTES:,}")
    return entry


def lacking(numbers: Sequence[int], index: Index) -> list[int]:
    """Of some numbers those that are after all that there are, in order."""
    after = index.last.number if index.last is not None else 0
    return sorted(number for number in numbers if number > after)
