"""Rows by where they start and end, against a look at all of them."""

import random

from manager.paths.row_ends import RowsAtEnds, grouped


def test_rows_are_found_as_by_a_look_at_all() -> None:
    draw, rows, of = random.Random(1), RowsAtEnds(), {"n1": 1, "n3": 3, "a1": 11, "gone": 0}
    there: dict[int, tuple[str, str]] = {}
    for row in range(400):
        there[row] = f"n{draw.randrange(9)}", f"a{draw.randrange(5)}"
        rows.add([row], [there[row]])
        if draw.random() < 0.4:
            dropped = draw.choice(list(there))
            rows.drop(dropped, *there.pop(dropped))
    expected = [
        (of[end], {row for row, both in there.items() if both[which] == end})
        for which in range(2)
        for end in of
    ]
    found = [(what, set(some.tolist())) for what, some in rows.at(of)]
    assert sorted(found, key=str) == sorted([each for each in expected if each[1]], key=str)
    same = [(what, set(some.tolist())) for what, some in grouped(list(there), list(there.values()), of)]
    assert sorted(same, key=str) == sorted(found, key=str)
    assert rows.from_nic("n1") == {row for row, both in there.items() if both[0] == "n1"}


def test_what_no_row_has_is_forgotten() -> None:
    rows = RowsAtEnds()
    rows.add([1], [("n", "a")])
    rows.drop(1, "n", "a")
    assert list(rows.at({"n": 0, "a": 0})) == []
    assert not rows.from_nic("n")
