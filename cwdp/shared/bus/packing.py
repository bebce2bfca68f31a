"""How what a host says is made small: rows are turned so that equal bytes stand together, and each message is deflated.

Rows of one message are alike: the first bytes of all rows come together, then the second ones, and so on (byte-shuffle),
which zlib's quickest level packs well. Numbers that lie close to another are told as differences to that, modulo their size.
"""

import functools
import zlib
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

MOST_BYTES = 1 << 20
"""Of a message before it is packed: what nats-server takes by default. No message is unpacked to more."""

LEVEL = 1

ABOVE = (
    ("fwd_p99_ns", "fwd_p50_ns"),
    ("rev_p99_ns", "rev_p50_ns"),
    ("fwd_p50_ns", "fwd_min_ns"),
    ("rev_p50_ns", "rev_min_ns"),
    ("fwd_mean_ns", "fwd_min_ns"),
    ("rev_mean_ns", "rev_min_ns"),
)
"""Columns that are told as differences to others of their row, in the order in which they are taken off."""

STEPS = ("src", "dst", "sport", "reply_sport", "qpn", "path")
"""Columns that are told as differences to the row before."""


class TooLargeError(ValueError):
    """A message is larger than any that is taken in."""


def packed(message: bytes) -> bytes:
    """A message as it travels.

    Raises:
        TooLargeError: it is larger than MOST_BYTES.
    """
    if len(message) > MOST_BYTES:
        raise TooLargeError(f"a message of {len(message)} bytes")
    return zlib.compress(message, LEVEL)


def unpacked(data: bytes) -> bytes:
    """A message as it was said; what would be larger than MOST_BYTES is never made.

    Raises:
        msgspec.DecodeError: it was not packed so, not whole, or is larger.
    """
    inflate = zlib.decompressobj()
    try:
        message = inflate.decompress(data, MOST_BYTES)
    except zlib.error as error:
        raise msgspec.DecodeError(f"it is not packed: {error}") from error
    if not inflate.eof or inflate.unused_data:
        raise msgspec.DecodeError(f"it is not whole, or more than {MOST_BYTES} bytes")
    return message


def row_bytes(rows: NDArray[np.void]) -> bytes:
    """Rows for a message, as many bytes as they have, shape (rows,)."""
    above, steps = _differences(rows.dtype)
    turned = rows.copy()
    for column, base in above:
        turned[column] -= rows[base]
    for column in steps:
        turned[column][1:] -= rows[column][:-1]
    return turned.view(np.uint8).reshape(len(rows), rows.dtype.itemsize).T.tobytes()


def rows_of(data: bytes, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """Rows from a message, shape (rows,).

    Raises:
        ValueError: the bytes are no whole number of rows.
    """
    return rows_of_each([data], dtype)[0]


def rows_of_each(
    parts: Sequence[bytes], dtype: np.dtype[np.void]
) -> tuple[NDArray[np.void], NDArray[np.intp]]:
    """Rows from several parts of messages, one part's behind another's, and how many each has; shapes (rows,) and (parts,).

    Raises:
        ValueError: the bytes of a part are no whole number of rows.
    """
    for data in parts:
        if len(data) % dtype.itemsize:
            raise ValueError(f"{len(data)} bytes are no whole number of rows of {dtype.itemsize}")
    each = [np.frombuffer(data, np.uint8).reshape(dtype.itemsize, -1) for data in parts]
    counts = np.array([turned.shape[1] for turned in each], np.intp)
    turned = each[0] if len(each) == 1 else np.concatenate(each, axis=1)
    rows: NDArray[np.void] = turned.T.copy().view(dtype).reshape(-1)
    above, steps = _differences(dtype)
    for column in steps:
        np.add.accumulate(rows[column], out=rows[column])
        if len(each) > 1 and len(rows):
            _begin_anew(rows[column], counts)
    for column, base in reversed(above):
        rows[column] += rows[base]
    return rows, counts


def _begin_anew(sums: NDArray[np.unsignedinteger], counts: NDArray[np.intp]) -> None:
    """Have running sums, modulo their size, begin anew after so many each; in place."""
    ends = np.cumsum(counts)
    sums -= np.repeat(np.where(ends > counts, sums[ends - counts - 1], 0), counts)


@functools.cache
def _differences(dtype: np.dtype[np.void]) -> tuple[list[tuple[str, str]], list[str]]:
    """Those of `ABOVE` and of `STEPS` that rows have."""
    names = dtype.names or ()
    return [each for each in ABOVE if each[0] in names], [name for name in STEPS if name in names]
