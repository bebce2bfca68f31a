"""Audits that are over, two files each: what they came to, and all facts, so that they can be judged anew."""

import hashlib
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from cwdp.errors import ManagerError
from cwdp.shared.audit.facts import HostFacts
from manager.audit.levels import Level
from manager.audit.results import Audit
from manager.audit.throughput.carried import Carried

KEPT = 20
"""So many audits are kept; the oldest go."""

VERDICTS, FACTS = ".audit", ".facts"

_T = TypeVar("_T")


class Finished(Struct, frozen=True, kw_only=True):
    """An audit that is over.

    Attributes:
        number: which, from 1 on.
        level: how far it went.
        by: who wanted it.
        began_s, ended_s: Unix time.
        hosts: who was asked.
        audit: all verdicts.
        network: those of them that are about the network, which was as it was then: they are not made of facts.
        carried: what flows came to in sum; None where none were sent.
    """

    number: int
    level: Level
    by: str
    began_s: float
    ended_s: float
    hosts: list[str]
    audit: Audit
    network: Audit
    carried: Carried | None = None


class _Ended(Struct, frozen=True):
    ended_s: float


@dataclass(frozen=True)
class Packed:
    """An audit as it is kept: what it came to, and all facts, as compressed MessagePack each.

    Facts of 10,000 simulated hosts are 190 MB, and 13 MB compressed; what they come to is 25 kB where most is well.
    """

    verdicts: bytes
    facts: bytes

    @property
    def digest(self) -> str:
        """Names both: SHA-256, in hexadecimal digits."""
        told = hashlib.sha256(self.verdicts)
        told.update(self.facts)
        return told.hexdigest()


class Files:
    """The files of a folder.

    Args:
        folder: which; made when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def numbers(self) -> list[int]:
        """Those that are kept, in order."""
        stems = (path.stem for path in self._folder.glob(f"*{VERDICTS}"))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def keep(self, finished: Finished, facts: Sequence[HostFacts]) -> None:
        """Write one, whole or not at all, and drop the oldest.

        Raises:
            OSError: it cannot be written.
        """
        self.take_in(finished.number, Packed(_pack(finished), _pack(facts)))

    def take_in(self, number: int, packed: Packed) -> None:
        """The same with one that is packed already. Raises what `keep` raises."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(self._path(number, FACTS), packed.facts)
        self._write(self._path(number, VERDICTS), packed.verdicts)
        for each in self.numbers()[:-KEPT]:
            self.drop(each)

    def packed(self, number: int) -> Packed:
        """One of them as it lies there.

        Raises:
            OSError: there is none of that number, or it cannot be read.
        """
        verdicts, facts = (self._path(number, ending).read_bytes() for ending in (VERDICTS, FACTS))
        return Packed(verdicts, facts)

    def drop(self, number: int) -> None:
        """Keep one no more.

        Raises:
            OSError: it cannot be removed.
        """
        for ending in (VERDICTS, FACTS):
            self._path(number, ending).unlink(missing_ok=True)

    def ended_s(self, number: int) -> float:
        """When one of them ended, Unix time. Raises what `read` raises."""
        return self._read(number, VERDICTS, _Ended).ended_s

    def read(self, number: int) -> Finished:
        """What one of them came to.

        Raises:
            ManagerError: there is none of that number, or it cannot be read.
        """
        return self._read(number, VERDICTS, Finished)

    def facts(self, number: int) -> list[HostFacts]:
        """The facts of those who told some. Raises what `read` raises."""
        return self._read(number, FACTS, list[HostFacts])

    def _read(self, number: int, ending: str, kind: type[_T]) -> _T:
        try:
            return msgspec.msgpack.decode(zlib.decompress(self._path(number, ending).read_bytes()), type=kind)
        except FileNotFoundError as error:
            raise ManagerError(
                f"there is no audit {number} here", "`cwdp audit list` shows those that are kept"
            ) from error
        except (OSError, zlib.error, msgspec.DecodeError) as error:
            raise ManagerError(f"audit {number} cannot be read: {error}", "have another one made") from error

    def _path(self, number: int, ending: str) -> Path:
        return self._folder / f"{number:06d}{ending}"

    def _write(self, path: Path, data: bytes) -> None:
        begun = path.with_name(f"{path.name}.new")
        with begun.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        begun.rename(path)


def _pack(what: object) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(what), 1)
