"""One walk under way: which hop limits are still to be asked, and what was answered. No I/O."""

from cwdp.agent.tracing.packets import FlowPath
from cwdp.agent.walking.packets import HopAnswer
from cwdp.shared.audit.facts import Walk, WalkHop

ATTEMPTS = 3


class Course:
    """Asks every hop limit of a walk up to `ATTEMPTS` times: a switch may be silent, and those behind it speak.

    A packet that does not fit ends the walk, as it gets no further than that with any greater hop limit. The last hop
    limit mostly reaches the destination: its stack says `unreachable`, or nothing, where XDP or an RDMA engine takes
    the packet or a firewall drops it. `none` is nothing unusual there.

    Args:
        walk: what was ordered.
        path: the same, with the source address.
        wait_s: how long an answer is waited for.
    """

    def __init__(self, walk: Walk, path: FlowPath, wait_s: float) -> None:
        self.walk, self.path = walk, path
        self._wait_s = wait_s
        self._end = walk.hops
        self._attempts = dict.fromkeys(range(1, walk.hops + 1), 0)
        self._until_s: dict[int, float] = {}
        self._answers: dict[int, WalkHop] = {}

    def next_limit(self, now_s: float) -> int | None:
        """The hop limit to ask now, which counts as asked; None while answers are waited for, or when it is over."""
        due = [
            (self._attempts[limit], limit)
            for limit in self._open()
            if self._attempts[limit] < ATTEMPTS and not self._waits(limit, now_s)
        ]
        if not due:
            return None
        _, limit = min(due)
        self._attempts[limit] += 1
        self._until_s[limit] = now_s + self._wait_s
        return limit

    def hear(self, limit: int, answer: HopAnswer) -> None:
        """A packet with this hop limit was answered; the first answer counts."""
        self._answers.setdefault(
            limit,
            WalkHop(
                answer=answer.kind,
                responder=answer.responder,
                tos=answer.tos,
                mtu_bytes=answer.mtu_bytes,
            ),
        )
        if self._answers[limit].answer == "too_big":
            self._end = min(self._end, limit)

    def is_over(self, now_s: float) -> bool:
        """Whether nothing is to be asked or waited for any more."""
        return all(
            self._attempts[limit] == ATTEMPTS and not self._waits(limit, now_s) for limit in self._open()
        )

    def hops(self) -> list[WalkHop]:
        """What came of each hop limit, from 1 up to the last one or that with which it did not fit."""
        return [self._answers.get(limit, WalkHop(answer="none")) for limit in range(1, self._end + 1)]

    def _open(self) -> list[int]:
        return [limit for limit in range(1, self._end + 1) if limit not in self._answers]

    def _waits(self, limit: int, now_s: float) -> bool:
        return limit in self._until_s and now_s < self._until_s[limit]
