"""What a manager does about faults together with those of other pods.

Each tells the others which links it knows to be at fault, and the root what became of its probes. The root names what lies
in no pod alone, by the evidence of all; a pod's manager names what lies in its own pod, and what nobody else does while no
root is heard. Without other pods none of this is done.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.packing import TooLargeError
from cwdp.shared.bus.subjects import pod_evidence, pod_findings
from manager.duties import Duties
from manager.fabric.routes import DirectedLink
from manager.faults.causes import Class, crossing
from manager.faults.finding import Finding, Kind, Subject
from manager.faults.loss_watch import Found
from manager.faults.watch import FaultWatch
from manager.hosts.members import Members
from manager.links.matrix import PathMatrix
from manager.pods.deciders import Deciders
from manager.pods.evidence import Joined, JointSums, Snapshot, Table, Teller, Union, joined
from manager.pods.evidence_messages import Evidence, Heard, Inbox, PackedTable, evidence
from manager.pods.findings_messages import (
    MOST_FINDINGS,
    Board,
    PodFindings,
    ToldFinding,
    dead_links,
    name_of,
    told,
)
from manager.pods.joint_watch import JointWatch
from manager.pods.pods import Pods

GLANCE_S = 0.1
EVERY_S, IDLE_S = 0.25, 1.0
"""From one message of evidence to the next: while something is lost, or was found to be, and otherwise."""

AGAIN_S = 1.0
ALIGN_S = 1.0
"""For so long those are waited for who have not heard yet what explains losses."""

SHARE = 0.2
THREAD_ABOVE_ROWS = 20_000
LOSSES: tuple[Kind, ...] = ("silent", "lossy")

_T = TypeVar("_T")


class FleetWatch:
    """This manager's part in it.

    Args:
        bus: the manager's.
        pods: who the others are, and who is the root.
        members: the hosts, by which it is known what belongs to whom.
        faults: what this manager finds.
        duties: counts what it takes.
        epoch: of this manager's time as the leader.
        now_s: a clock that only ever goes on.

    Attributes:
        inbox: the evidence that the root hears.
        board: what other pods' leaders know to be at fault.
        joint: what the root finds.
    """

    def __init__(
        self,
        bus: Bus,
        pods: Pods,
        members: Members,
        faults: FaultWatch,
        duties: Duties,
        *,
        epoch: Callable[[], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.inbox, self.board = Inbox(now_s), Board(now_s)
        self.joint = JointWatch(faults.name_losses, faults.end, faults.fell_silent)
        self._bus, self._pods, self._faults, self._duties = bus, pods, faults, duties
        self._epoch, self._now_s = epoch, now_s
        self._deciders = Deciders(bus.pod, members)
        self._seq, self._said_epoch = 0, -1
        self._said: tuple[float, list[ToldFinding]] = float("-inf"), []
        self._others: list[ToldFinding] = []
        self._adopted: set[str] = set()
        self._is_alone = True
        self._teller: tuple[Teller, PackedTable] | None = None
        self._evidence: tuple[float, int] = float("-inf"), 0
        self._joined: tuple[tuple[Table, ...], Joined] = (), joined([])
        self._union = Union([])
        self._aligned_s = float("-inf")
        faults.losses.decides = self._decides
        faults.keeps = lambda subject: self._is_alone or self._deciders.keeps(self._links, subject)

    def listen(self) -> None:
        """Hear other leaders; before the bus is started."""
        self._bus.subscribe(pod_findings("*"), PodFindings, self.hear_findings)
        self._bus.subscribe(pod_evidence(self._bus.pod), Evidence, self.hear_evidence)

    def hear_findings(self, message: PodFindings) -> None:
        """A leader tells what is at fault."""
        if (message.pod, message.epoch) != (self._bus.pod, self._said_epoch):
            self.board.hear(message)

    def hear_evidence(self, message: Evidence) -> None:
        """A leader tells the root what became of probes."""
        if self._is_root and message.pod != self._bus.pod:
            with self._duties.of("root"):
                self.inbox.hear(message)

    async def run(self) -> None:
        """Take part, for ever."""
        while True:
            async with self._duties.paced("pods' faults", "evidence", "root", least_s=GLANCE_S, share=SHARE):
                await self.step()

    async def step(self) -> None:
        """Go by what others know, tell what this manager knows, and decide, if this is the root."""
        if not self._pods.others():
            self._be_alone()
            return
        self._is_alone = False
        with self._duties.of("pods' faults"):
            known = self._exchange()
        if self._pods.leads and self._pods.root is not None:
            await self._weigh(known)

    @property
    def _is_root(self) -> bool:
        return self._pods.leads and self._pods.root == self._bus.pod

    @property
    def _links(self) -> tuple[DirectedLink, ...]:
        matrix = self._faults.losses.matrix
        return () if matrix is None else matrix.routes.links

    def _decides(self, named: Class) -> bool:
        return self._is_alone or self._deciders.decides(self._links, named)

    def _be_alone(self) -> None:
        """Go on with what is known as a manager without other pods does."""
        if self._is_alone:
            return
        self._is_alone = True
        if self._pods.leads:
            for message in self.board.all():
                for each in message.findings:
                    if each.is_joint and self._meets(each.subject):
                        self._adopt(each)
        self._follow_alone()
        self._faults.losses.take_told({})
        self._faults.dead_elsewhere = frozenset()

    def _follow_alone(self) -> None:
        """Hold what was found together against this pod's own probes; who has none over it knows no more of it."""
        losses = self._faults.losses
        for finding in self.joint.findings:
            self.joint.leave(finding)
            if self._meets(finding.subject):
                losses.follow(finding)
            else:
                self._faults.end(finding)

    def _meets(self, subject: Subject) -> bool:
        """Whether this pod's own probes do."""
        matrix = self._faults.losses.matrix
        return matrix is not None and bool(crossing(matrix, subject).any())

    def _exchange(self) -> list[ToldFinding]:
        """Take up what others tell, tell what is new; returns all that is told now, by whomever."""
        others = {report.pod for report in self._pods.others()}
        fresh = {
            pod: told for pod, told in self.board.fresh().items() if pod in others or pod == self._bus.pod
        }
        own_pod = fresh.pop(self._bus.pod, None)
        if not self._pods.leads and own_pod is not None:
            fresh[self._bus.pod] = own_pod
        self._deciders.hear(fresh, is_root=self._is_root)
        self._hand_over(fresh)
        self._others = [
            each
            for pod, message in fresh.items()
            for each in message.findings
            if pod != self._bus.pod or each.is_joint
        ]
        own = self._own()
        here = [each for each in own if each.is_joint]
        self._faults.losses.take_told(
            {each.key: each.whole for each in [*self._others, *here] if each.explains}
        )
        self._faults.dead_elsewhere = dead_links(self._others)
        if self._pods.leads:
            self._say(own)
        return [*own, *self._others]

    def _own(self) -> list[ToldFinding]:
        """What this manager tells."""
        joint, losses = self.joint.findings, self._faults.losses.followed
        losses.sort(key=lambda finding: finding.kind not in LOSSES)
        say = [
            *(self._told(each, explains=True, is_joint=True) for each in joint),
            *(self._told(each, explains=True) for each in losses),
            *(self._told(each, explains=False) for each in self._faults.routed_round),
        ]
        return [each for each in say if each is not None][:MOST_FINDINGS]

    def _told(self, finding: Finding, *, explains: bool, is_joint: bool = False) -> ToldFinding | None:
        is_inside = self._deciders.owner(self._links, finding) == self._bus.pod
        return told(finding, self._key(finding), explains=explains, is_joint=is_joint, is_inside=is_inside)

    def _key(self, finding: Finding) -> str:
        return f"{self._bus.pod}/{self._epoch()}/{finding.number}"

    def _say(self, own: list[ToldFinding]) -> None:
        said_s, before = self._said
        if own == before and self._now_s() - said_s < AGAIN_S:
            return
        self._said = self._now_s(), own
        self._said_epoch = self._epoch()
        message = PodFindings(
            pod=self._bus.pod,
            epoch=self._epoch(),
            seq=self._next(),
            is_root=self._is_root,
            findings=own,
        )
        self._bus.publish(pod_findings(self._bus.pod), message)

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _hand_over(self, fresh: dict[str, PodFindings]) -> None:
        """Let each finding be followed by who is to, and by nobody else."""
        losses, joint = self._faults.losses, self.joint
        if not self._pods.leads:
            self._follow_alone()
        for finding in [*losses.followed, *joint.findings]:
            if finding.kind in LOSSES and self._deciders.is_told_by_others(self._links, finding):
                joint.leave(finding)
                self._faults.end(finding)
        if self._is_root:
            for finding in losses.followed:
                if finding.kind in LOSSES and not self._deciders.decides(self._links, finding):
                    losses.leave(finding)
                    joint.follow(finding)
            self._take_over(fresh)

    def _take_over(self, fresh: dict[str, PodFindings]) -> None:
        """Go on with what others found that was, or is now, the root's to decide."""
        gone = [message for message in self.board.all() if message.pod not in fresh]
        for message in [*gone, *fresh.values()]:
            for each in message.findings:
                if each.is_joint or (each.explains and not each.is_inside):
                    self._adopt(each)
        self._adopted &= {each.key for message in self.board.all() for each in message.findings}

    def _adopt(self, each: ToldFinding) -> None:
        """Go on with a finding of another manager, unless one of the same links holds."""
        known = {
            link for finding in self._faults.findings.of("dead", *LOSSES) for link in finding.subject.links
        }
        if each.key in self._adopted or each.kind not in LOSSES or not each.links.isdisjoint(known):
            return
        self._adopted.add(each.key)
        finding = self._faults.name_losses(
            Found(
                kind=each.kind,
                named=Class(each.subject, each.also),
                confidence=each.confidence,
                loss=each.loss,
                evidence=[*each.evidence, f"taken over from the leader of {each.key.partition('/')[0]}"],
                windows=0,
            )
        )
        finding.start_s = each.start_s
        self.joint.follow(finding)

    async def _weigh(self, known: list[ToldFinding]) -> None:
        """Sum up this pod's losses for the root, or all pods' as the root, where that is due."""
        losses, name = self._faults.losses, name_of(known)
        matrix, counted = losses.matrix, {each.key for each in known if each.is_joint}
        if matrix is None:
            return
        is_losing = bool(losses.history.lost_sums[-1][~losses.explained].any()) or bool(counted)
        parts = self.inbox.fresh() if self._is_root else {}
        is_losing |= any(part.sums.all_lost[-1] > 0 for part in parts.values())
        said_s, said_name = self._evidence
        is_new = name != said_name or (is_losing and not self._is_root)
        if self._now_s() - said_s < (EVERY_S if is_new or self._is_root else IDLE_S):
            return
        self._evidence = self._now_s(), name
        own = await self._sum_up(matrix, name, counted) if is_losing or not self._is_root else None
        if own is None:
            return
        if self._is_root:
            await self._decide(dict(sorted({**parts, self._bus.pod: own}.items())), name)
        else:
            self._send(own)

    async def _tell_of(self, matrix: PathMatrix, duty: str) -> tuple[Teller, PackedTable]:
        """What sums are made by."""
        if self._teller is None or self._teller[0].matrix is not matrix:
            before = self._teller
            self._teller = await self._worked(matrix, duty, lambda: _teller(matrix, before))
        return self._teller

    async def _sum_up(self, matrix: PathMatrix, name: int, counted: set[str]) -> Heard | None:
        """This pod's evidence; None where rows have become others meanwhile."""
        losses = self._faults.losses
        duty = "root" if self._is_root else "evidence"
        try:
            teller, _ = await self._tell_of(matrix, duty)
        except TooLargeError:
            self._bus.counters["dropped_too_large"] += 1
            return None
        if losses.matrix is not matrix:
            return None
        probes = Snapshot.of(losses.history, losses.explained)
        counts = {key: each for key, each in losses.told.counts.items() if key in counted}
        sums = await self._worked(matrix, duty, lambda: teller.sums(probes))
        return Heard(teller.table, sums, self._now_s(), self._epoch(), name, counts)

    def _send(self, own: Heard) -> None:
        root = self._pods.root
        if root is None or self._teller is None:
            return
        try:
            with self._duties.of("evidence"):
                message = evidence(
                    self._bus.pod,
                    self._epoch(),
                    self._next(),
                    self._teller[1],
                    own.sums,
                    explained=own.explained,
                    counted=own.counted,
                )
        except TooLargeError:
            self._bus.counters["dropped_too_large"] += 1
            return
        self._bus.publish(pod_evidence(root), message)

    async def _decide(self, parts: dict[str, Heard], name: int) -> None:
        """Look at all pods' evidence together; what leaves out other losses than this manager does is waited for a moment."""
        now_s = self._now_s()
        with self._duties.of("root"):
            self.joint.count({pod: (part.epoch, part.counted) for pod, part in parts.items()}, self._key)
        same = {pod: part for pod, part in parts.items() if part.explained == name}
        if len(same) == len(parts):
            self._aligned_s = now_s
        elif now_s - self._aligned_s < ALIGN_S:
            return
        tables = tuple(part.table for part in same.values())
        whole = await self._join(tables)
        if not self._is_root or name != name_of([*self._own(), *self._others]):
            return
        with self._duties.of("root"):
            sums = JointSums(whole, [part.sums for part in same.values()])
            self.joint.look(whole, sums, partial(self._deciders.is_joint, tables), now_s)

    async def _join(self, tables: tuple[Table, ...]) -> Joined:
        before, whole = self._joined
        if len(before) != len(tables) or any(a is not b for a, b in zip(before, tables, strict=True)):
            is_large = sum(len(table.links) for table in tables) > THREAD_ABOVE_ROWS
            work = partial(self._duties.timed, "root", partial(_joined, tables, self._union))
            self._union, whole = await asyncio.to_thread(work) if is_large else work()
            self._joined = tables, whole
        return whole

    async def _worked(self, matrix: PathMatrix, duty: str, work: Callable[[], _T]) -> _T:
        """What some work over all rows comes to, done in a thread where there are many."""
        timed = partial(self._duties.timed, duty, work)
        return await asyncio.to_thread(timed) if len(matrix.known) > THREAD_ABOVE_ROWS else timed()


def _teller(matrix: PathMatrix, before: tuple[Teller, PackedTable] | None) -> tuple[Teller, PackedTable]:
    earlier, packed = before or (None, None)
    teller = Teller(matrix, earlier)
    has_same = earlier is not None and earlier.table.links is teller.table.links
    return teller, PackedTable.of(teller.table, packed if has_same else None)


def _joined(tables: tuple[Table, ...], union: Union) -> tuple[Union, Joined]:
    union = union if union.is_of(tables) else Union(tables)
    return union, joined(tables, union)
