"""What a host says comes out of a message as it went in, and nothing else does: bounded, whole, and refused otherwise."""

import zlib

import msgspec
import numpy as np
import pytest
from bus_fakes import authority
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cwdp.shared.bus.edges import FIT_ROW, PATH_ROW
from cwdp.shared.bus.messages import Event, Hello, encode
from cwdp.shared.bus.packing import (
    MOST_BYTES,
    TooLargeError,
    packed,
    row_bytes,
    rows_of,
    rows_of_each,
    unpacked,
)
from cwdp.shared.bus.records import QP_ROW, SAMPLE_ROW, WINDOW_ROW
from cwdp.shared.bus.sealing import HostSeal, LeaderSeal

ROWS = (FIT_ROW, PATH_ROW, QP_ROW, SAMPLE_ROW, WINDOW_ROW)
SUBJECT = "cwdp.v2.pod.up.h1.event"
EVENT = Event(host="h1", local_ns=1, kind="link_up", nic="nic0", detail="")


@st.composite
def _rows(draw: st.DrawFn) -> NDArray[np.void]:
    """Rows of any kind that travel, of any bytes: with that NaN, infinities and the ends of all ranges."""
    dtype = draw(st.sampled_from(ROWS))
    count = draw(st.integers(0, 20))
    return np.frombuffer(
        draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize)), dtype
    )


@given(_rows())
def test_rows_come_out_as_they_went_in(rows: NDArray[np.void]) -> None:
    said = rows.tobytes()
    told = rows_of(unpacked(packed(row_bytes(rows))), rows.dtype)
    assert (told.dtype, told.shape, told.tobytes()) == (rows.dtype, rows.shape, said)
    assert rows.tobytes() == said


@given(st.data(), st.sampled_from(ROWS))
def test_parts_of_messages_come_out_together_as_each_alone(
    data: st.DataObject, dtype: np.dtype[np.void]
) -> None:
    sizes = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    parts = [
        row_bytes(np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), dtype))
        for size in (count * dtype.itemsize for count in sizes)
    ]
    rows, counts = rows_of_each(parts, dtype)
    assert counts.tolist() == sizes
    assert rows.tobytes() == b"".join(rows_of(part, dtype).tobytes() for part in parts)
    with pytest.raises(ValueError, match="no whole number"):
        rows_of_each([*parts, b"x"], dtype)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 5e-324])
def test_every_float_comes_out_as_it_went_in(value: float) -> None:
    rows = np.zeros(3, FIT_ROW)
    rows["slope"] = value
    assert rows_of(row_bytes(rows), FIT_ROW).tobytes() == rows.tobytes()


@pytest.mark.parametrize("dtype", ROWS)
def test_rows_that_are_every_other_one_of_a_table_come_out_too(dtype: np.dtype[np.void]) -> None:
    table = np.frombuffer(np.random.default_rng(1).bytes(40 * dtype.itemsize), dtype)
    for rows in (table[::2], table[::-1], table[:1], table[:0]):
        assert rows_of(row_bytes(rows), dtype).tobytes() == rows.tobytes()


@pytest.mark.parametrize("dtype", ROWS)
def test_bytes_that_are_no_whole_rows_are_refused(dtype: np.dtype[np.void]) -> None:
    for size in (1, dtype.itemsize - 1, dtype.itemsize + 1):
        with pytest.raises(ValueError, match="no whole number"):
            rows_of(bytes(size), dtype)


def test_the_rows_of_a_fleet_at_rest_become_small() -> None:
    rng = np.random.default_rng(1)
    rows = np.zeros(640, WINDOW_ROW)
    rows["window"], rows["sent"], rows["bound_ns"] = 17_000_000_000, 2, 40
    rows["sport"], rows["reply_sport"] = rng.integers(0xC000, 0x10000, (2, 640))
    for way in ("fwd", "rev"):
        rows[f"{way}_min_ns"] = 5_000 + rng.integers(0, 30, 640)
        rows[f"{way}_mean_ns"] = rows[f"{way}_min_ns"] + rng.integers(0, 40, 640)
    assert len(packed(row_bytes(rows))) < rows.nbytes / 6


@given(st.binary(max_size=300))
def test_a_message_comes_out_as_it_went_in(message: bytes) -> None:
    assert unpacked(packed(message)) == message


@given(st.binary(max_size=300))
def test_bytes_that_were_not_packed_are_refused(data: bytes) -> None:
    try:
        unpacked(data)
    except msgspec.DecodeError:
        return
    assert zlib.decompressobj().decompress(data)


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_message_that_is_cut_changed_or_followed_by_another_is_refused(
    message: bytes, draw: st.DataObject
) -> None:
    data = packed(message)
    place = draw.draw(st.integers(0, len(data) - 1))
    for wrong in (data[:place], data + b"x", data + data):
        with pytest.raises(msgspec.DecodeError):
            unpacked(wrong)


def test_what_would_unpack_to_more_than_a_message_may_be_is_refused_and_never_made() -> None:
    assert len(unpacked(packed(bytes(MOST_BYTES)))) == MOST_BYTES
    with pytest.raises(TooLargeError):
        packed(bytes(MOST_BYTES + 1))
    bomb = zlib.compressobj(9)
    data = b"".join(bomb.compress(bytes(MOST_BYTES)) for _ in range(200)) + bomb.flush()
    assert len(data) < MOST_BYTES / 4
    for wrong in (data, zlib.compress(bytes(MOST_BYTES + 1))):
        with pytest.raises(msgspec.DecodeError, match="more than"):
            unpacked(wrong)


def test_what_a_host_says_is_packed_and_what_was_not_is_refused() -> None:
    host, leader = HostSeal("h1", "any"), LeaderSeal(authority().control_key)
    assert leader.decode(SUBJECT, Event, host.encode("event", EVENT)) == EVENT
    with pytest.raises(msgspec.DecodeError):
        leader.decode(SUBJECT, Event, encode(EVENT))
    with pytest.raises(msgspec.DecodeError):
        leader.decode(SUBJECT, Hello, host.encode("event", EVENT))
