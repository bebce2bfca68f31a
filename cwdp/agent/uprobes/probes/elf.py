"""Where functions are that a shared library exports. No I/O.

The System V ABI, chapter 4, and the Linux Standard Base, "Symbol Versioning". Little-endian, 64 bits.
"""

import mmap
import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x7fELF\x02\x01"
DYNSYM, VERSYM, VERDEF = 11, 0x6FFFFFFF, 0x6FFFFFFD
PT_LOAD = 1
FUNC = 2
HIDDEN = 0x8000
LONGEST_NAME = 256
MOST_SEGMENTS = 1_024

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SEGMENT = struct.Struct("<IIQQQQQQ")
VERSION = struct.Struct("<HHHHIII")
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)

Data = bytes | mmap.mmap


class Function(NamedTuple):
    """A function of a library.

    Attributes:
        version: of its symbol; "" where that has none.
        is_default: whether programs that are linked now get this one.
        address: in the library's own addresses.
        offset: in its file.
    """

    name: str
    version: str
    is_default: bool
    address: int
    offset: int


class ElfError(Exception):
    """It is no such library, or not whole."""


def functions(data: Data, names: Collection[str]) -> list[Function]:
    """The functions of these names that a library exports: one for each version of their symbols.

    Args:
        data: the file.
        names: those that are looked for.

    Raises:
        ElfError: see there.
    """
    try:
        return list(_functions(data, names))
    except (struct.error, ValueError, IndexError) as error:
        raise ElfError(f"not whole: {error}") from error


def _functions(data: Data, names: Collection[str]) -> Iterator[Function]:
    header = HEADER.unpack_from(data)
    if not header[0].startswith(MAGIC):
        raise ElfError("no shared library of 64 bits")
    sections = [SECTION.unpack_from(data, header[6] + i * SECTION.size) for i in range(header[12])]
    by_type = {section[1]: section for section in sections}
    if DYNSYM not in by_type:
        raise ElfError("no dynamic symbols")
    symbols: NDArray[np.void] = np.frombuffer(_content(data, by_type[DYNSYM]), SYMBOL)
    strings = _content(data, sections[by_type[DYNSYM][6]])
    versions = (
        np.frombuffer(_content(data, by_type[VERSYM]), "<u2")
        if VERSYM in by_type
        else np.ones(len(symbols), "<u2")
    )
    version_names = dict(_version_names(data, by_type.get(VERDEF), sections))
    segments = [
        SEGMENT.unpack_from(data, header[5] + i * SEGMENT.size) for i in range(min(header[10], MOST_SEGMENTS))
    ]
    is_defined = (symbols["section"] != 0) & ((symbols["info"] & 0xF) == FUNC)
    for name in names:
        for i in np.flatnonzero(is_defined & np.isin(symbols["name"], _places(strings, name))).tolist():
            address, version = int(symbols["value"][i]), int(versions[i])
            shown = version_names.get(version & ~HIDDEN, "")
            yield Function(name, shown, not version & HIDDEN, address, _offset(segments, address))


def _content(data: Data, section: tuple[int, ...]) -> bytes:
    start, size = section[4], section[5]
    if start + size > len(data):
        raise ElfError("not whole")
    return data[start : start + size]


def _places(strings: bytes, name: str) -> list[int]:
    """Where a table of strings has a name, also as the end of a longer one."""
    wanted, places, at = name.encode() + b"\0", [], -1
    while (at := strings.find(wanted, at + 1)) >= 0:
        places.append(at)
    return places


def _version_names(
    data: Data, section: tuple[int, ...] | None, sections: list[tuple[int, ...]]
) -> Iterator[tuple[int, str]]:
    if section is None:
        return
    definitions, strings = _content(data, section), _content(data, sections[section[6]])
    at = 0
    for _ in range(section[7]):
        _, _, index, _, _, auxiliary, step = VERSION.unpack_from(definitions, at)
        (start,) = struct.unpack_from("<I", definitions, at + auxiliary)
        yield index, strings[start : start + LONGEST_NAME].split(b"\0", 1)[0].decode(errors="replace")
        at += step


def _offset(segments: list[tuple[int, ...]], address: int) -> int:
    for kind, _, offset, virtual, _, size, _, _ in segments:
        if kind == PT_LOAD and virtual <= address < virtual + size:
            return address - virtual + offset
    raise ElfError(f"address {address:#x} is in no segment")
