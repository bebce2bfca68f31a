"""Rings of fixed size on disk: for each level of detail the last buckets, each with a cell for every slot.

A bucket's header bears its number and the checksum of its cells, and is written after them: of a bucket that was
written in part, or that a later one is overwriting, the header does not fit, and it reads as unknown. Files are
written by pwrite and read by pread, not mapped: on a full disk or a bad block a mapping is SIGBUS, which would end the
manager; these are errors. Any method may raise OSError.
"""

import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cwdp.shared.aside import set_aside
from manager.history.coding import CELL_BYTES, Cells, from_bytes, to_bytes

VERSION = 1
FIRST_SLOTS, MOST_SLOTS = 64, 1024

_FILE = struct.Struct("<8sII16s")
_BUCKET = struct.Struct("<qII")
_MAGIC = b"CWDPRING"


@dataclass(frozen=True)
class Level:
    """Buckets of one length.

    Attributes:
        bucket_s: its length, whole seconds.
        count: how many are kept.
    """

    bucket_s: int
    count: int

    def number(self, time_s: float) -> int:
        """Of the bucket that a time lies in."""
        return int(time_s // self.bucket_s)


LEVELS = (Level(10, 360), Level(60, 1440), Level(600, 2016))
"""An hour, a day, a fortnight."""

BUCKETS = sum(level.count for level in LEVELS)
_FIRST_BUCKET = np.cumsum([0, *(level.count for level in LEVELS)]).tolist()


def segment_start(number: int) -> int:
    """The first slot of a segment: they grow as powers of two up to `MOST_SLOTS`."""
    growing = (MOST_SLOTS // FIRST_SLOTS).bit_length()
    if number < growing:
        return 0 if number == 0 else FIRST_SLOTS << (number - 1)
    return MOST_SLOTS * (number - growing + 1)


def segment_slots(number: int) -> int:
    """How many slots a segment has."""
    return segment_start(number + 1) - segment_start(number)


def segment_bytes(slots: int) -> int:
    """The size of a segment's file."""
    return _FILE.size + BUCKETS * (_BUCKET.size + slots * CELL_BYTES)


class WrongFileError(Exception):
    """A file that is no segment of this ring."""


class Segment:
    """One file.

    Args:
        path: where; it is made unless it is there.
        slots: how many it has.
        generation: 16 bytes that tell the directory of names that its slots belong to.

    Raises:
        WrongFileError: it is there and is another's, or none.
    """

    def __init__(self, path: Path, slots: int, generation: bytes) -> None:
        self.slots = slots
        header = _FILE.pack(_MAGIC, VERSION, slots, generation)
        if not path.exists():
            _make(path, header, segment_bytes(slots))
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        found = os.pread(self._fd, len(header), 0)
        if found != header or os.fstat(self._fd).st_size != segment_bytes(slots):
            os.close(self._fd)
            raise WrongFileError

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def sync(self) -> None:
        """Have it on the disk."""
        os.fdatasync(self._fd)

    def write(self, level: int, number: int, cells: Cells) -> None:
        """Write a bucket, in place of the one that was there.

        Args:
            level: a place in `LEVELS`.
            number: of the bucket.
            cells: of the first slots; shape (at most slots,).
        """
        place, data = self._place(level, number), to_bytes(cells)
        _write_all(self._fd, data, self._data(place))
        header = _BUCKET.pack(number, len(cells), zlib.crc32(data))
        _write_all(self._fd, header, _FILE.size + place * _BUCKET.size)

    def read(self, level: int, number: int) -> Cells:
        """A bucket's cells, 0 for unknown; shape (slots,)."""
        place, cells = self._place(level, number), np.zeros(self.slots, np.uint64)
        header = os.pread(self._fd, _BUCKET.size, _FILE.size + place * _BUCKET.size)
        if len(header) < _BUCKET.size:
            return cells
        found, count, checksum = _BUCKET.unpack(header)
        if found != number or not 0 < count <= self.slots:
            return cells
        data = os.pread(self._fd, count * CELL_BYTES, self._data(place))
        if len(data) == count * CELL_BYTES and zlib.crc32(data) == checksum:
            cells[:count] = from_bytes(data)
        return cells

    def numbers(self, level: int) -> list[int]:
        """The buckets of a level that are there, in order."""
        first, count = _FIRST_BUCKET[level], LEVELS[level].count
        data = os.pread(self._fd, count * _BUCKET.size, _FILE.size + first * _BUCKET.size)
        return sorted(number for number, used, _ in _BUCKET.iter_unpack(data) if used)

    def _place(self, level: int, number: int) -> int:
        return int(_FIRST_BUCKET[level]) + number % LEVELS[level].count

    def _data(self, place: int) -> int:
        return _FILE.size + BUCKETS * _BUCKET.size + place * self.slots * CELL_BYTES


def _make(path: Path, header: bytes, size_bytes: int) -> None:
    """An empty file; it is there whole or not at all. It takes no room before it is written."""
    draft = path.with_suffix(".new")
    with draft.open("wb") as file:
        file.write(header)
        file.truncate(size_bytes)
    draft.rename(path)


def _write_all(fd: int, data: bytes, offset: int) -> None:
    """All of it: a disk that is about to be full takes a part and says nothing."""
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


class Ring:
    """Segments that hold as many slots as there are names.

    Args:
        directory: of the files.
        name: what they begin with.
        generation: see `Segment`.

    Attributes:
        set_aside: files that were none of this ring's, under their new names.
    """

    def __init__(self, directory: Path, name: str, generation: bytes) -> None:
        self._directory, self._name, self._generation = directory, name, generation
        self._segments: list[Segment] = []
        self.set_aside: list[Path] = []
        directory.mkdir(parents=True, exist_ok=True)
        while self._path(len(self._segments)).exists():
            self._grow()

    @property
    def size_bytes(self) -> int:
        """What all files may grow to."""
        return sum(segment_bytes(segment.slots) for segment in self._segments)

    @property
    def segments(self) -> int:
        """How many files there are."""
        return len(self._segments)

    @property
    def slots(self) -> int:
        """How many there is room for in the files that there are."""
        return segment_start(len(self._segments))

    def grow_to(self, slots: int) -> None:
        """Have room for so many slots."""
        while self.slots < slots:
            self._grow()

    def write(self, level: int, number: int, cells: Cells) -> None:
        """Write a bucket; cells of shape (at most slots,), 0 for unknown."""
        for i, segment in enumerate(self._segments):
            mine = cells[segment_start(i) : segment_start(i + 1)]
            if len(mine):
                segment.write(level, number, mine)

    def read(self, level: int, number: int) -> Cells:
        """A bucket, 0 for unknown; shape (slots,)."""
        parts = [segment.read(level, number) for segment in self._segments]
        return np.concatenate([np.zeros(0, np.uint64), *parts])

    def read_slot(self, slot: int, level: int, numbers: range) -> Cells:
        """A slot's cells in some buckets, 0 for unknown; shape (numbers,)."""
        i = next(i for i in range(len(self._segments)) if slot < segment_start(i + 1))
        there = set(self._segments[i].numbers(level))
        place = slot - segment_start(i)
        found = [self._segments[i].read(level, number)[place] if number in there else 0 for number in numbers]
        return np.array(found, np.uint64)

    def numbers(self, level: int) -> list[int]:
        """The buckets of a level that some segment has, in order."""
        return sorted({number for segment in self._segments for number in segment.numbers(level)})

    def sync(self) -> None:
        """Have all of it on the disk."""
        for segment in self._segments:
            segment.sync()

    def close(self) -> None:
        """Let go of the files."""
        for segment in self._segments:
            segment.close()
        self._segments.clear()

    def _path(self, number: int) -> Path:
        return self._directory / f"{self._name}-{number:03d}.ring"

    def _grow(self) -> None:
        number = len(self._segments)
        path, slots = self._path(number), segment_slots(number)
        try:
            segment = Segment(path, slots, self._generation)
        except WrongFileError:
            self.set_aside.append(set_aside(path))
            segment = Segment(path, slots, self._generation)
        self._segments.append(segment)
