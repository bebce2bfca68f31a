"""What an earlier leader says is refused, and no number, however high, shuts a host off for good."""

import random

import pytest

from cwdp.agent.fence import SILENT_AFTER_S, Fence
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


def _desired(epoch: int, version: int, since_s: float = 0.0) -> Desired:
    return Desired(host="a", epoch=epoch, led_since_s=since_s, version=version, probes=[])


def _update(epoch: int, seq: int, since_s: float = 0.0) -> ClockUpdate:
    return ClockUpdate(
        host="a", timeline="t", epoch=epoch, led_since_s=since_s, seq=seq, line=LINE, priors=[]
    )


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


def test_a_leader_of_whom_nothing_is_heard_any_more_may_be_followed_by_a_lower_number(
    fence: Fence, clock: _Clock
) -> None:
    """As where the bus lost its store and counts anew."""
    assert fence.admits_document(_desired(1 << 60, 1, 5.0))
    for _ in range(int(SILENT_AFTER_S)):
        assert not fence.admits_document(_desired(7, 2, 6.0))
        assert not fence.admits_clock(_update(7, 5, 6.0))
        assert not fence.admits_document(_desired(7, 3, 4.0))
        assert fence.again() is None
        clock.now_s += 0.99
    clock.now_s += 1.0
    again = fence.again()
    assert again == _desired(7, 2, 6.0)
    assert fence.admits_document(again)
    assert fence.again() is None
    assert fence.admits_clock(_update(7, 6, 6.0))


@pytest.mark.parametrize("loses_store", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_what_was_once_said_is_never_followed_again(
    fence: Fence, clock: _Clock, seed: int, loses_store: bool
) -> None:
    """However long the host hears nothing else, and whatever of that it has heard itself."""
    draw = random.Random(seed)
    said: list[Desired | ClockUpdate] = []
    epoch, since_s = 0, 1e9

    def admits(message: Desired | ClockUpdate) -> bool:
        if isinstance(message, Desired):
            return fence.admits_document(message)
        return fence.admits_clock(message)

    for _ in range(30):
        if lost := loses_store and draw.random() < 0.3:
            clock.now_s += SILENT_AFTER_S + 1
        epoch = draw.randrange(1, 4) if lost else epoch + draw.randrange(1, 100)
        since_s += draw.uniform(4.0, 1e5)
        for number in range(1, draw.randrange(2, 5)):
            heard = [make(epoch, number, since_s) for make in (_desired, _update)]
            assert all(map(admits, heard)), (epoch, number)
            said += heard
        clock.now_s += draw.choice([0.0, 1.0, SILENT_AFTER_S + 1, 1e7])
        assert not any(map(admits, draw.sample(said, len(said))))
        again = fence.again()
        assert again is None or not fence.admits_document(again)


def test_a_new_leader_is_told_of_once_by_whatever_it_says_first(clock: _Clock) -> None:
    leaders: list[str] = []
    fence = Fence(clock, on_leader=lambda: leaders.append("new"))
    assert fence.admits_clock(_update(3, 1))
    assert fence.admits_document(_desired(3, 1))
    assert len(leaders) == 1
    assert fence.admits_document(_desired(5, 1))
    assert fence.admits_clock(_update(5, 2))
    assert not fence.admits_clock(_update(4, 9))
    assert len(leaders) == 2
