"""Links that several pods load: each pod's leader tells the root what it wants of them, and the root grants it a part.

A message replaces the one before it, and holds for a while only, so nothing is granted twice. Names and numbers are packed as
all rows on the bus are: at most 1 MiB each before that.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.packing import TooLargeError
from cwdp.shared.bus.subjects import pod_granted, pod_wants
from manager.duties import Duties
from manager.fabric.routes import DirectedLink
from manager.planner.planner import Planner
from manager.pods.grants import LAST_S, shares
from manager.pods.link_rates import GRANT_ROW, WANT_ROW, Divider, LinkRates, LinkRows, Namer, Told, told_by
from manager.pods.pods import SILENT_S, Pods

EVERY_S = 1.0
TURN_S = 5.0
"""For so long one pod in need gets what nobody wants."""

REASONS = ("ok", "not_newer", "not_sane", "not_the_root")
CAPACITY = 1
"""Which of the rates that are wanted tells what a link can carry."""


class Sharing:
    """This manager's part in it, while it leads its pod.

    Args:
        bus: the manager's.
        pods: who the others are, and who is the root.
        planner: that goes by what is granted.
        duties: counts what the root does.
        epoch: of this manager's time as the leader.
        now_s: a clock that only ever goes on.

    Attributes:
        reports: messages by what became of them (`REASONS`).
    """

    def __init__(
        self,
        bus: Bus,
        pods: Pods,
        planner: Planner,
        duties: Duties,
        *,
        epoch: Callable[[], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reports: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._bus, self._pods, self._planner, self._duties = bus, pods, planner, duties
        self._epoch, self._now_s = epoch, now_s
        self._seq = 0
        self._namers: dict[str, Namer] = {}
        self._divider = Divider()
        self._wants: dict[str, tuple[float, tuple[int, int], Told]] = {}
        self._granted_as: Told | None = None
        self._granted: tuple[float, str, tuple[int, int], dict[DirectedLink, float]] | None = None

    def listen(self) -> None:
        """Hear what other leaders want and grant; before the bus is started."""
        self._bus.subscribe(pod_wants(self._bus.pod), LinkRows, self.hear_wants)
        self._bus.subscribe(pod_granted(self._bus.pod), LinkRows, self.hear_granted)

    async def run(self) -> None:
        """Tell, divide and go by what is granted, for ever."""
        while True:
            if self._pods.leads:
                self.step()
            await asyncio.sleep(EVERY_S)

    def step(self) -> None:
        """Tell the root what this pod wants; divide, if this is the root; go by what was granted last."""
        others, root, own = self._pods.others(), self._pods.root, self._bus.pod
        if not others and self._granted is None:
            return
        wanted = LinkRates(*self._planner.wanted)
        if others and root == own:
            with self._duties.of("root"):
                self._divide(wanted)
        elif others and root is not None:
            self._send(pod_wants(root), wanted)
        self._planner.granted_bps = self._in_force(wanted, 1 + len(others))

    def hear_wants(self, message: LinkRows) -> None:
        """A leader wants something of the root."""
        with self._duties.of("root"):
            self.reports[self._take_wants(message)] += 1

    def hear_granted(self, message: LinkRows) -> None:
        """The root grants something."""
        self.reports[self._take_granted(message)] += 1

    def _take_wants(self, message: LinkRows) -> str:
        now_s, number = self._now_s(), (message.epoch, message.seq)
        if not self._pods.leads or self._pods.root != self._bus.pod:
            return "not_the_root"
        self._wants = {pod: each for pod, each in self._wants.items() if now_s - each[0] < SILENT_S}
        before = self._wants.get(message.pod)
        if before is not None and number <= before[1]:
            return "not_newer"
        try:
            told = told_by(message, WANT_ROW, None if before is None else before[2])
        except (ValueError, msgspec.DecodeError):
            return "not_sane"
        self._wants[message.pod] = now_s, number, told
        return "ok"

    def _take_granted(self, message: LinkRows) -> str:
        now_s, number, before = self._now_s(), (message.epoch, message.seq), self._granted
        if message.pod != self._pods.root:
            return "not_the_root"
        is_same = before is not None and before[1] == message.pod and now_s - before[0] < SILENT_S
        if is_same and before is not None and number <= before[2]:
            return "not_newer"
        try:
            told = self._granted_as = told_by(message, GRANT_ROW, self._granted_as)
        except (ValueError, msgspec.DecodeError):
            return "not_sane"
        self._granted = now_s, message.pod, number, told.rates.by_link(0)
        return "ok"

    def _divide(self, own: LinkRates) -> None:
        now_s = self._now_s()
        heard = {pod: told.rates for pod, (at_s, _, told) in self._wants.items() if now_s - at_s < SILENT_S}
        wants = dict(sorted({**heard, self._bus.pod: own}.items()))
        for pod, granted in self._divider.divided(wants, int(now_s / TURN_S)).items():
            if pod == self._bus.pod:
                self._granted = now_s, pod, (self._epoch(), self._seq), granted.by_link(0)
            else:
                self._send(pod_granted(pod), granted)

    def _send(self, subject: str, told: LinkRates) -> None:
        self._seq += 1
        namer = self._namers.setdefault(subject, Namer())
        try:
            message = namer.link_rows(self._bus.pod, self._epoch(), self._seq, told)
        except TooLargeError:
            self._bus.counters["dropped_too_large"] += 1
            return
        self._bus.publish(subject, message)

    def _in_force(self, wanted: LinkRates, pods: int) -> dict[DirectedLink, float]:
        if self._granted is None:
            return {}
        at_s, _, _, granted = self._granted
        if self._now_s() - at_s <= LAST_S:
            return granted
        if pods == 1:
            self._granted = None
            return {}
        can_bps = wanted.by_link(CAPACITY)
        return shares({link: can_bps[link] for link in granted if link in can_bps}, pods)
