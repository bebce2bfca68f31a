"""What an earlier leader says is refused, and no number, however high, shuts a host off for good."""

import random

import pytest

from cwdp.agent.fence import FORGOTTEN_AFTER_S, Fence
from cwdp.shared.bus.messages import ClockLine, ClockUpdate, Desired

LINE = ClockLine(
    ref_local_ns=0, offset_base_ns=0, offset_ns=0.0, drift=0.0, bound_ns=1.0, bound_drift=0.0, state="synced"
)


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def fence(clock: _Clock) -> Fence:
    return Fence(clock)


def _desired(epoch: int, version: int) -> Desired:
    return Desired(host="a", epoch=epoch, version=version, probes=[])


def _update(epoch: int, seq: int) -> ClockUpdate:
    return ClockUpdate(host="a", timeline="t", epoch=epoch, seq=seq, line=LINE, priors=[])


@pytest.mark.parametrize("seed", range(5))
def test_what_is_admitted_only_ever_gets_newer(fence: Fence, seed: int) -> None:
    draw = random.Random(seed)
    documents: list[tuple[int, int]] = []
    updates: list[tuple[int, int]] = []
    epochs: list[int] = []
    for _ in range(500):
        name = draw.randrange(8), draw.randrange(1, 30)
        if draw.random() < 0.5:
            if fence.admits_document(_desired(*name)):
                documents.append(name)
                epochs.append(name[0])
        elif fence.admits_clock(_update(*name)):
            updates.append(name)
            epochs.append(name[0])
    for admitted in (documents, updates):
        assert len(admitted) > 1
        assert admitted == sorted(set(admitted))
    assert epochs == sorted(epochs)
    assert min(fence.counters.values()) > 0


def test_a_later_leader_may_count_anew(fence: Fence) -> None:
    assert fence.admits_document(_desired(3, 812))
    assert fence.admits_clock(_update(3, 1 << 40))
    assert fence.admits_clock(_update(4, 1))
    assert not fence.admits_document(_desired(3, 813))
    assert fence.admits_document(_desired(4, 1))


def test_a_leader_of_whom_nothing_is_heard_any_more_is_forgotten(fence: Fence, clock: _Clock) -> None:
    """As where somebody forged a number, or where the bus lost its store and counts anew."""
    assert fence.admits_document(_desired(1 << 60, 1))
    for _ in range(int(FORGOTTEN_AFTER_S)):
        assert not fence.admits_document(_desired(7, 2))
        assert not fence.admits_clock(_update(7, 5))
        assert fence.again() is None
        clock.now_s += 0.99
    clock.now_s += 1.0
    again = fence.again()
    assert again == _desired(7, 2)
    assert fence.admits_document(again)
    assert fence.again() is None
    assert fence.admits_clock(_update(7, 6))


def test_a_forged_number_of_an_update_is_forgotten_too(fence: Fence, clock: _Clock) -> None:
    assert fence.admits_clock(_update(7, 1 << 60))
    for seq in range(5, 5 + int(FORGOTTEN_AFTER_S)):
        assert not fence.admits_clock(_update(7, seq))
        clock.now_s += 1.0
    clock.now_s += 0.5
    assert fence.admits_clock(_update(7, 500))
    assert not fence.admits_clock(_update(7, 499))
