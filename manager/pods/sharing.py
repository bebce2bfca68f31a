"""Links that several pods load: each pod's leader tells the root what it wants of them, and the root grants it a part.

A message replaces the one before it, and holds for a while only, so nothing is granted twice. Names and numbers are packed as
all rows on the bus are: at most 1 MiB each before that.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.packing import TooLargeError, packed, row_bytes, rows_of, unpacked
from cwdp.shared.bus.subjects import pod_granted, pod_wants
from manager.duties import Duties
from manager.fabric.routes import DirectedLink
from manager.planner.planner import Planner
from manager.pods.grants import LAST_S, grants, shares
from manager.pods.link_names import links_of, named
from manager.pods.pods import SILENT_S, Pods

EVERY_S = 1.0
TURN_S = 5.0
"""For so long one pod in need gets what nobody wants."""

MOST_BPS = 1e15
REASONS = ("ok", "not_newer", "not_sane", "not_the_root")

WANT_ROW = np.dtype([("a", "<u4"), ("b", "<u4"), ("wanted_bps", "<f8"), ("capacity_bps", "<f8")])
"""A link by the places of its ends in the list of nodes; its capacity is 0 where it is not known."""

GRANT_ROW = np.dtype([("a", "<u4"), ("b", "<u4"), ("granted_bps", "<f8")])

Wanted = Mapping[DirectedLink, tuple[float, float]]
"""What a pod wants of each link, and what the link can carry by its estimate, 0 where there is none."""


class LinkRows(Struct, frozen=True, kw_only=True):
    """What a pod's leader says of links: WANT_ROWs to the root, GRANT_ROWs from it.

    Attributes:
        pod: whose leader says so.
        epoch, seq: of that leader, and of its messages; later ones are higher.
        nodes, rows: packed.
    """

    pod: str
    epoch: int
    seq: int
    nodes: bytes
    rows: bytes


def link_rows(pod: str, epoch: int, seq: int, told: Mapping[DirectedLink, tuple[float, ...]]) -> LinkRows:
    """A message of one or two numbers for each link.

    Raises:
        TooLargeError: there are more links than a message holds.
    """
    is_want = len(next(iter(told.values()), ())) > 1
    nodes, ends = named(told)
    rows = np.array(
        [(*places, *numbers) for places, numbers in zip(ends, told.values(), strict=True)],
        WANT_ROW if is_want else GRANT_ROW,
    )
    return LinkRows(pod=pod, epoch=epoch, seq=seq, nodes=nodes, rows=packed(row_bytes(rows)))


def told_by(message: LinkRows, dtype: np.dtype[np.void]) -> dict[DirectedLink, tuple[float, ...]]:
    """The numbers of each link.

    Raises:
        ValueError: they cannot be.
    """
    rows = rows_of(unpacked(message.rows), dtype)
    _, links = links_of(message.nodes, rows)
    numbers = np.stack([rows[name] for name in (dtype.names or ())[2:]], axis=1)
    if not ((numbers >= 0) & (numbers <= MOST_BPS)).all():
        raise ValueError("rates that cannot be")
    return dict(zip(links, map(tuple, numbers.tolist()), strict=True))


def divided(wants: Mapping[str, Wanted], turn: int) -> dict[str, dict[DirectedLink, float]]:
    """What each pod is granted of the links that others want as well, of a capacity that some pod knows.

    A link can carry what the pod says that saw it carry most: one that others load as well was seen full with a part.
    """
    known: dict[DirectedLink, float] = {}
    users: Counter[DirectedLink] = Counter()
    for wanted in wants.values():
        users.update(wanted.keys())
        for link, (_, capacity_bps) in wanted.items():
            known[link] = max(known.get(link, 0.0), capacity_bps)
    links = sorted(link for link, count in users.items() if count > 1 and known[link] > 0)
    if not links:
        return {pod: {} for pod in wants}
    demand: NDArray[np.float64] = np.array(
        [[wanted.get(link, (0.0, 0.0))[0] for link in links] for wanted in wants.values()]
    )
    granted = grants(np.array([known[link] for link in links]), demand, turn)
    return {pod: dict(zip(links, row.tolist(), strict=True)) for pod, row in zip(wants, granted, strict=True)}


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
        self._wants: dict[str, tuple[float, tuple[int, int], Wanted]] = {}
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
        wanted = self._planner.wanted
        if others and root == own:
            with self._duties.of("root"):
                self._divide({own: wanted})
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
            told = told_by(message, WANT_ROW)
        except (ValueError, msgspec.DecodeError):
            return "not_sane"
        wanted = {link: (numbers[0], numbers[1]) for link, numbers in told.items()}
        self._wants[message.pod] = now_s, number, wanted
        return "ok"

    def _take_granted(self, message: LinkRows) -> str:
        now_s, number, before = self._now_s(), (message.epoch, message.seq), self._granted
        if message.pod != self._pods.root:
            return "not_the_root"
        is_same = before is not None and before[1] == message.pod and now_s - before[0] < SILENT_S
        if is_same and before is not None and number <= before[2]:
            return "not_newer"
        try:
            told = told_by(message, GRANT_ROW)
        except (ValueError, msgspec.DecodeError):
            return "not_sane"
        granted = {link: numbers[0] for link, numbers in told.items()}
        self._granted = now_s, message.pod, number, granted
        return "ok"

    def _divide(self, own: Mapping[str, Wanted]) -> None:
        now_s = self._now_s()
        heard = {pod: wanted for pod, (at_s, _, wanted) in self._wants.items() if now_s - at_s < SILENT_S}
        wants = dict(sorted((heard | dict(own)).items()))
        for pod, granted in divided(wants, int(now_s / TURN_S)).items():
            if pod in own:
                self._granted = now_s, pod, (self._epoch(), self._seq), granted
            else:
                self._send(pod_granted(pod), {link: (bps,) for link, bps in granted.items()})

    def _send(self, subject: str, told: Mapping[DirectedLink, tuple[float, ...]]) -> None:
        self._seq += 1
        try:
            message = link_rows(self._bus.pod, self._epoch(), self._seq, told)
        except TooLargeError:
            self._bus.counters["dropped_too_large"] += 1
            return
        self._bus.publish(subject, message)

    def _in_force(self, wanted: Wanted, pods: int) -> dict[DirectedLink, float]:
        if self._granted is None:
            return {}
        at_s, _, _, granted = self._granted
        if self._now_s() - at_s <= LAST_S:
            return granted
        if pods == 1:
            self._granted = None
            return {}
        return shares({link: wanted[link][1] for link in granted if link in wanted}, pods)
