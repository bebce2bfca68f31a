"""Codes of measurements: precision, unknown, zero, cells and bytes."""

import numpy as np
import pytest

from manager.history.coding import (
    CELL_BYTES,
    LINK_FIELDS,
    PAIR_FIELDS,
    Field,
    from_bytes,
    merged,
    pack,
    to_bytes,
    unpack,
)


@pytest.mark.parametrize("field", [*LINK_FIELDS, *PAIR_FIELDS], ids=lambda field: field.name)
def test_values_come_back_within_a_code(field: Field) -> None:
    rng = np.random.default_rng(1)
    values = np.exp(rng.uniform(np.log(field.least), np.log(field.most), 5_000))
    again = field.decode(field.encode(values))
    assert np.abs(again / values - 1).max() <= (field.ratio - 1) * 0.51
    assert field.ratio < 1.06


@pytest.mark.parametrize("field", [*LINK_FIELDS, *PAIR_FIELDS], ids=lambda field: field.name)
def test_what_has_no_logarithm(field: Field) -> None:
    values = np.array([np.nan, 0.0, -5.0, field.least / 10, field.most * 10, np.inf])
    again = field.decode(field.encode(values))
    assert np.isnan(again[[0, 5]]).all()
    assert (again[1:4] == 0).all()
    assert again[4] == pytest.approx(field.most)


@pytest.mark.parametrize("fields", [LINK_FIELDS, PAIR_FIELDS])
@pytest.mark.parametrize("count", [0, 1, 77])
def test_cells_keep_each_field_apart(fields: tuple[Field, ...], count: int) -> None:
    rng = np.random.default_rng(count)
    values = {
        field.name: np.where(
            rng.random(count) < 0.2,
            np.nan,
            np.exp(rng.uniform(np.log(field.least), np.log(field.most), count)),
        )
        for field in fields
    }
    data = to_bytes(pack(fields, values))
    assert len(data) == count * CELL_BYTES
    again = unpack(fields, from_bytes(data))
    for field in fields:
        assert np.array_equal(np.isnan(again[field.name]), np.isnan(values[field.name]))
        assert np.allclose(again[field.name], values[field.name], rtol=0.03, equal_nan=True)


def test_what_was_never_written_is_unknown() -> None:
    assert all(
        np.isnan(each).all() for each in unpack(LINK_FIELDS, from_bytes(bytes(3 * CELL_BYTES))).values()
    )


def test_spans_are_put_together_by_what_they_are() -> None:
    nan = np.nan
    both = {
        "owd_p50_ns": np.array([[10.0, nan], [30.0, nan]]),
        "owd_p99_ns": np.array([[10.0, nan], [30.0, 5.0]]),
        "owd_min_ns": np.array([[10.0, 4.0], [30.0, nan]]),
        "loss": np.array([[0.0, nan], [0.5, 1.0]]),
    }
    found = merged(PAIR_FIELDS, both)
    assert np.array_equal(found["owd_p50_ns"], [20.0, nan], equal_nan=True)
    assert found["owd_p99_ns"].tolist() == [30.0, 5.0]
    assert found["owd_min_ns"].tolist() == [10.0, 4.0]
    assert found["loss"].tolist() == [0.25, 1.0]
