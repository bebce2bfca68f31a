"""What collective flows may be of."""

import pytest

from manager.jobs.kinds import Communicator, communicators
from tools.sim.jobs.world import ends_of, job


def sent(kind: str, count: int) -> dict[tuple[str, str], int]:
    ends = ends_of([(f"h{i}", "nic0") for i in range(1, count + 1)])
    plan = job(ends, kind, list(ends), 100)
    return {pair: 1000 for one in plan.communicators for pair in one.pairs}


@pytest.mark.parametrize("count", range(2, 17))
def test_collectives_by_who_sends_to_whom(count: int) -> None:
    small = {2: "pair", 3: "chain", 4: "chain"}
    expected = {
        "ring": small.get(count, "ring") if count == 2 else "ring",
        "all-to-all": "pair" if count == 2 else "all-to-all",
        "pipeline": small.get(count, "pipeline"),
        "tree": small.get(count, "tree"),
    }
    for kind, shown in expected.items():
        (found,) = communicators(sent(kind, count))
        assert found.kind == shown
        assert len(found.members) == count


def test_what_only_tells_others_to_go_on_is_no_traffic() -> None:
    ring = sent("ring", 5)
    back = {(dst, src): 10 for src, dst in ring}
    (found,) = communicators(ring | back)
    assert found.kind == "ring"


def test_several_communicators_are_told_apart_where_they_do_not_meet() -> None:
    rails = {(f"h{i}/nic{j}", f"h{(i + 1) % 4}/nic{j}"): 1 for i in range(4) for j in range(2)}
    found = communicators(rails)
    assert [each.kind for each in found] == ["ring", "ring"]
    assert found[0] == Communicator(tuple(f"h{i}/nic0" for i in range(4)), "ring")
    both = sent("ring", 6) | {("h1/nic0", "h4/nic0"): 1000, ("h4/nic0", "h1/nic0"): 1000}
    assert [each.kind for each in communicators(both)] == ["mixed"]
    assert communicators({}) == []
