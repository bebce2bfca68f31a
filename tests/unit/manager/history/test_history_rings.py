"""Rings on disk: what is written is read, what was half written is not, and trouble of each kind."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from manager.history.coding import LINK_FIELDS
from manager.history.measured import VANISHED_S, Measured
from manager.history.rings import (
    LEVELS,
    MOST_SLOTS,
    Ring,
    Segment,
    WrongFileError,
    segment_bytes,
    segment_start,
)
from manager.history.store import Store

GENERATION = b"g" * 16
ROOM = 1 << 30
START_S = 1_800_000_000.0
FIELDS = [field.name for field in LINK_FIELDS]


def _ring(directory: Path) -> Ring:
    return Ring(directory, "links", GENERATION)


def _cells(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 1 << 48, count).astype(np.uint64)


@pytest.mark.parametrize("slots", [1, 63, 64, 65, 1000, 3000])
def test_each_level_keeps_its_last_buckets(tmp_path: Path, slots: int) -> None:
    ring = _ring(tmp_path)
    ring.grow_to(slots)
    for level, each in enumerate(LEVELS):
        for number in (7, 8, 8 + each.count):
            ring.write(level, number, _cells(number, slots))
        assert ring.numbers(level) == [7, 8 + each.count]
        assert not ring.read(level, 8).any()
        assert np.array_equal(ring.read(level, 8 + each.count)[:slots], _cells(8 + each.count, slots))
        assert ring.read_slot(slots - 1, level, range(6, 9)).tolist() == [0, _cells(7, slots)[-1], 0]
    ring.close()
    again = _ring(tmp_path)
    assert np.array_equal(again.read(1, 7)[:slots], _cells(7, slots))
    assert again.set_aside == []


def test_a_link_takes_at_most_25_kilobytes() -> None:
    for slots in (64, MOST_SLOTS):
        assert segment_bytes(slots) / slots <= 25_000
    assert [segment_start(number) for number in range(8)] == [0, 64, 128, 256, 512, 1024, 2048, 3072]


@pytest.mark.parametrize("kept_bytes", [0, 1, 100, 383])
def test_a_bucket_that_was_written_in_part_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    segment = Segment(tmp_path / "s", 64, GENERATION)
    old, new = 3, 3 + LEVELS[0].count
    segment.write(0, old, _cells(1, 64))
    whole = os.pwrite

    def torn(fd: int, data: bytes, offset: int) -> int:
        whole(fd, data[:kept_bytes], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", torn)
    with pytest.raises(OSError, match="No space"):
        segment.write(0, new, _cells(2, 64))
    monkeypatch.undo()
    assert not segment.read(0, new).any()
    assert not segment.read(0, old).any() or kept_bytes == 0
    segment.write(0, new, _cells(2, 64))
    assert np.array_equal(segment.read(0, new), _cells(2, 64))


@pytest.mark.parametrize("damage", ["short", "garbage", "other", "empty"])
def test_a_file_that_is_none_is_set_aside_and_begun_anew(tmp_path: Path, damage: str) -> None:
    ring = _ring(tmp_path)
    ring.grow_to(100)
    ring.write(0, 5, _cells(5, 100))
    ring.close()
    path = tmp_path / "links-001.ring"
    content = path.read_bytes()
    path.write_bytes(
        {"short": content[:-1], "garbage": os.urandom(len(content)), "empty": b""}.get(damage, content)
    )
    again = Ring(tmp_path, "links", b"h" * 16) if damage == "other" else _ring(tmp_path)
    assert len(again.set_aside) == (2 if damage == "other" else 1)
    assert all(".corrupt-" in path.name and path.exists() for path in again.set_aside)
    found = again.read(0, 5)
    assert not found[64:].any()
    assert damage == "other" or np.array_equal(found[:64], _cells(5, 100)[:64])
    again.write(0, 6, _cells(6, 100))
    assert np.array_equal(again.read(0, 6)[:100], _cells(6, 100))


def test_a_segment_of_another_size_is_no_segment(tmp_path: Path) -> None:
    Segment(tmp_path / "s", 64, GENERATION).close()
    with pytest.raises(WrongFileError):
        Segment(tmp_path / "s", 128, GENERATION)


@pytest.fixture
def no_room() -> Iterator[None]:
    """No file may grow beyond a few pages: as a full disk, it is an error of the call."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_for_a_file_is_an_error_and_leaves_nothing_half_made(tmp_path: Path, no_room: None) -> None:
    with pytest.raises(OSError, match="too large"):
        _ring(tmp_path).grow_to(1)
    assert not list(tmp_path.glob("*.ring"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()


def _measured(tmp_path: Path, store: Store) -> Measured:
    return Measured(Ring(tmp_path, "links", store.generation), "links", LINK_FIELDS, store)


def _values(count: int, of: float) -> dict[str, np.ndarray]:
    return {name: np.full(count, 0.5 if name == "loss" else of) for name in FIELDS}


NAMES = (("h1/e", "l1"), ("l1", "s1"), ("s1", "l2"))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_was_measured_is_known_by_time_in_the_detail_that_is_left(
    tmp_path: Path, store: Store, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    measured = _measured(tmp_path, store)
    start_s = START_S + float(rng.integers(0, 1000))
    for second in range(0, 3 * 3600, 5):
        if second == 5400:  # a manager that is killed, and another that goes on
            measured.ring.close()
            measured = _measured(tmp_path, store)
        measured.add(NAMES, _values(3, 1000.0 + second), start_s + second, ROOM)
    end_s = start_s + 3 * 3600
    for ago_s, lasts_s in ((60.0, 10.0), (1800.0, 10.0), (2 * 3600.0, 60.0)):
        found = measured.at(end_s - ago_s)
        assert found is not None
        assert found.lasts_s == lasts_s
        assert sorted(found.names) == sorted(NAMES)
        assert found.time_s <= end_s - ago_s < found.time_s + lasts_s
        middle = 1000.0 + found.time_s + lasts_s / 2 - start_s
        assert found.values["queue_p50_ns"] == pytest.approx([middle] * 3, abs=lasts_s, rel=0.01)
        assert (found.values["queue_p99_ns"] >= found.values["queue_p50_ns"] * 0.99).all()
        assert found.values["loss"] == pytest.approx([0.5] * 3, rel=0.03)
    assert measured.at(start_s - 3600) is None
    span_s = measured.span_s()
    assert span_s is not None
    assert span_s[0] <= start_s < end_s - 5 <= span_s[1]
    starts, lasts, values = measured.series(("l1", "s1"), end_s - 600, end_s) or (None, 0, {})
    assert lasts == 10
    assert len(starts) == 61
    assert np.isfinite(values["load_bps"][:-1]).all()
    assert measured.series(("l1", "nowhere"), 0.0, end_s) is None


def test_links_that_have_been_gone_for_long_leave_their_places_to_others(
    tmp_path: Path, store: Store
) -> None:
    measured = _measured(tmp_path, store)
    many = tuple((f"a{i}", "b") for i in range(200))
    measured.add(many, _values(200, 5.0), START_S, ROOM)
    size = measured.ring.size_bytes
    later_s = START_S + VANISHED_S + 2 * 86_400
    others = tuple((f"c{i}", "d") for i in range(200))
    measured.add(others, _values(200, 7.0), later_s, ROOM)
    assert measured.ring.size_bytes == size
    found = measured.at(later_s)
    assert found is not None
    assert sorted(found.names) == sorted(others)
    again = _measured(tmp_path, store)
    assert again.names == 200


def test_no_more_files_than_there_is_room_for(tmp_path: Path, store: Store) -> None:
    measured = _measured(tmp_path, store)
    many = tuple((f"a{i}", "b") for i in range(500))
    measured.add(many, _values(500, 5.0), START_S, 2 * segment_bytes(64))
    assert measured.names == 128
    assert measured.no_room == 500 - 128
    found = measured.at(START_S)
    assert found is not None
    assert len(found.names) == 128
