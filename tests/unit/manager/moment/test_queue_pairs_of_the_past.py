"""Queue pairs as history kept them: each once, by the path that it had then."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from manager.moment.talkers import of_then

NODES = ("l1", "l2", "s1", "s2", "s3")


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    """What is kept of a queue pair between two hosts; its path may not be known."""
    src, dst = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    switches = draw(st.none() | st.lists(st.sampled_from(NODES), min_size=1, max_size=5, unique=True))
    return {
        "host": f"h{src}",
        "nic": "e",
        "dst_addr": f"10.0.0.{dst}",
        "qpn": draw(st.integers(0, 2)),
        "peer": f"h{dst}/e",
        "sport": draw(st.integers(49152, 65535)),
        "bps": draw(st.integers(0, 10**9)),
        "path": None if switches is None else [f"h{src}/e", *switches, f"h{dst}/e"],
    }


@given(st.lists(rows(), max_size=20))
def test_each_once_as_it_was_kept_last_by_its_path_of_then(kept: list[dict[str, Any]]) -> None:
    newest = {(row["host"], row["dst_addr"], row["qpn"]): row for row in kept}
    found = of_then(kept)
    assert {(name.host, name.dst_addr, name.qpn) for name in found.names} == set(newest)
    assert len(found.names) == len(newest)
    for i, name in enumerate(found.names):
        row = newest[name.host, name.dst_addr, name.qpn]
        path = list(pairwise(row["path"] or ()))
        assert (found.path(i), found.kept[i], found.sport[i]) == (path, row, row["sport"])
        assert all(i in found.crossing([link]) for link in path)
