"""The reference itself against the vectors of the paper and of its authors' code."""

import pytest
from siphash import siphash_2_4

KEY = bytes(range(16))


@pytest.mark.parametrize(
    ("length", "tag"),
    [
        (0, "310e0edd47db6f72"),
        (1, "fd67dc93c539f874"),
        (7, "37d1018bf50002ab"),
        (8, "6224939a79f5f593"),
        (15, "e545be4961ca29a1"),
        (63, "724506eb4c328a95"),
    ],
)
def test_vector(length: int, tag: str) -> None:
    assert siphash_2_4(KEY, bytes(range(length))).to_bytes(8, "little").hex() == tag


def test_the_papers_example() -> None:
    assert siphash_2_4(KEY, bytes(range(15))) == 0xA129CA6149BE45E5
