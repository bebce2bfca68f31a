"""Work that is done in steps."""

from manager.jobs.steps import Steps, finish, step


def _counting(done: list[int]) -> Steps[int]:
    for i in range(3):
        done.append(i)
        yield
    return len(done)


def test_each_step_is_done_by_itself_and_the_last_one_tells_what_all_came_to() -> None:
    done: list[int] = []
    work = _counting(done)
    assert step(work) is None
    assert done == [0]
    assert step(work) is None
    assert step(work) is None
    assert step(work) == (3,)


def test_all_steps_at_once() -> None:
    assert finish(_counting([])) == 3
