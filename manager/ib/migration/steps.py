"""The change of path of a connection over InfiniBand while it sends, by automatic path migration (IBTA volume 1, 17.2.8). No I/O.

Both ends load the alternate path of the same number; then one migrates, and its packets have the other do so; then the other
is asked whether it has. What is taken in are answers of the verbs shim to its orders LOAD and MIGRATE. No device was tried.
"""

import errno
from typing import Literal, NamedTuple

How = Literal["load", "migrate"]
State = Literal["loading", "migrating", "following", "done", "failed"]


class Step(NamedTuple):
    """What one of the two ends, 0 or 1, is to be ordered, before its answer or the deadline is waited for."""

    end: int
    how: How


class Migration:
    """One attempt. Another one for the same connection may begin when this one `is_over`.

    An order that came to nothing before both had loaded leaves the connection where it is. One that is not answered has not been
    begun after the deadline, which is part of it: so nobody migrates to what the other end has not loaded.

    Args:
        deadline_ns: of all its orders, on the clock of `now_ns`.
        is_loaded: whether both ends have the path loaded already.
        only_loads: whether neither is to migrate.
        follower: the end that alone is to go where the other one is already; None for both.

    Attributes:
        state: how far it has come.
        error: why it has failed, an errno; 0 otherwise.
        not_yet: what an end that was not ready has answered last, an errno; 0 for nothing.
    """

    def __init__(
        self,
        deadline_ns: int,
        *,
        is_loaded: bool = False,
        only_loads: bool = False,
        follower: int | None = None,
    ) -> None:
        self.state: State = "migrating" if is_loaded else "loading"
        self.error = self.not_yet = 0
        self._deadline_ns, self._only_loads, self._follower = deadline_ns, only_loads, follower
        self._asked: set[Step] = set()

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is under way any more."""
        return self.state in ("done", "failed")

    def begin(self) -> list[Step]:
        """The first orders."""
        if self.state == "migrating":
            return self._ask(Step(0, "migrate"))
        if self._follower is not None:
            return self._ask(Step(self._follower, "load"))
        return self._ask(Step(0, "load"), Step(1, "load"))

    def hear(self, step: Step, error: int, now_ns: int) -> list[Step]:
        """An end has answered an order with an errno, 0 where it is done; the orders that follow. Answers to none pass by."""
        self.tidy(now_ns)
        if self.is_over or step not in self._asked:
            return []
        self._asked.discard(step)
        if step.how == "migrate" and error in (errno.EAGAIN, errno.EBUSY):
            self.not_yet = error
            return self._ask(step)
        if error:
            return self._fail(error)
        return self._go_on()

    def tidy(self, now_ns: int) -> None:
        """Give up where the deadline is over: what has not been answered will not be done."""
        if not self.is_over and now_ns > self._deadline_ns:
            self._fail(errno.ETIMEDOUT)

    def _go_on(self) -> list[Step]:
        """An order is done."""
        if self._asked:
            return []
        if self.state == "loading" and self._follower is not None:
            self.state = "following"
            return self._ask(Step(self._follower, "migrate"))
        if self.state == "loading" and not self._only_loads:
            self.state = "migrating"
            return self._ask(Step(0, "migrate"))
        if self.state == "migrating":
            self.state = "following"
            return self._ask(Step(1, "migrate"))
        self.state = "done"
        return []

    def _ask(self, *steps: Step) -> list[Step]:
        self._asked.update(steps)
        return list(steps)

    def _fail(self, error: int) -> list[Step]:
        self.state, self.error = "failed", error
        return []
