"""Audits as the manager has them made: it asks hosts, waits, judges in a thread, keeps what came of it."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from msgspec import Struct

from cwdp.errors import ConfigError, ManagerError
from cwdp.shared.audit.facts import HostFacts
from cwdp.shared.bus.audits import AuditReport, FlowReport
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.subjects import down
from cwdp.shared.rates import format_rate
from cwdp.shared.tasks import first_end
from manager.audit.checks.loading import load_checks
from manager.audit.checks.model import Checks
from manager.audit.judging.judge import judge
from manager.audit.levels import Asked, Level, Stage
from manager.audit.results import Audit
from manager.audit.service.flow_round import Limits
from manager.audit.service.kept import Files, Finished
from manager.audit.service.network import NOTHING, Network, borne_with, joined, speeds_of
from manager.audit.service.running import HEARD, READING_S, WALKING_S, Running
from manager.audit.service.throughput import MOST_S, ROUNDS, Throughput
from manager.audit.sharing.shared import Shared
from manager.audit.summary import gravest_in_words, in_words
from manager.audit.throughput.course import MOST_OF_ALL
from manager.audit.today import today
from manager.config import ManagerConfig
from manager.planner.events import FLEET
from manager.state import FleetState

LOOK_S = 0.1

_log = logging.getLogger("cwdp.manager.audit")


class Progress(Struct, frozen=True, kw_only=True):
    """How far an audit has come.

    Attributes:
        stage: what hosts do: they read facts, walk, or send.
        answered, hosts: how many have told all of this stage, and how many were asked.
        rounds, most_rounds: of flows, that are over, and that there are at most; 0 before them.
        left_s: for so long it may take at most.
    """

    number: int
    level: Level
    stage: Stage
    answered: int
    hosts: int
    left_s: float
    rounds: int = 0
    most_rounds: int = 0


@dataclass
class _UnderWay:
    """An audit: what was asked for, who is asked now, and what was told so far."""

    number: int
    asked: Asked
    by: str
    began_s: float
    checks: Checks
    hosts: frozenset[str]
    running: Running
    stage: Stage = "facts"
    facts: dict[str, HostFacts] = field(default_factory=dict)
    network: Audit = NOTHING
    throughput: Throughput | None = None

    @property
    def needs_walks(self) -> bool:
        """Whether hosts are to walk yet."""
        return self.asked.level != "facts" and self.stage == "facts"

    @property
    def needs_flows(self) -> bool:
        """Whether hosts are to send yet."""
        return self.asked.level == "throughput" and self.stage == "walks"


class Audits:
    """The audits of one pod.

    Args:
        bus: to ask hosts by.
        state: what the manager knows of hosts and the network.
        config: says where audits are kept, and where the operator's checks and waivers are.
        confirm: whether it is certain that this manager leads.

    Attributes:
        files: audits that are over.
        shared: has all managers of the pod have the same.
        counters: reports by what became of them (`HEARD`).
        latest: the last one that is over; None for none.
    """

    def __init__(
        self, bus: Bus, state: FleetState, config: ManagerConfig, confirm: Callable[[], Awaitable[bool]]
    ) -> None:
        self._bus, self._state, self._network = bus, state, Network(state, config.probes.family)
        self.files, self._checks_folder = Files(Path(config.state_dir) / "audits"), Path(config.checks)
        self.shared = Shared(
            bus,
            self.files,
            epoch=lambda: state.leader.epoch if state.leads else None,
            confirm=confirm,
            on_news=self._read_last,
        )
        self.counters: Counter[str] = Counter(dict.fromkeys(HEARD, 0))
        self.latest: Finished | None = None
        self._under_way: _UnderWay | None = None

    def checks(self) -> Checks:
        """The default checks and the operator's.

        Raises:
            ChecksError: some have mistakes.
        """
        return load_checks(sorted(self._checks_folder.glob("*.toml")))

    def begin(self, asked: Asked, by: str, why: str | None = None) -> Progress:
        """Have hosts audited.

        Args:
            asked: which, and how far to go.
            by: who wants it.
            why: what for, where they said.

        Raises:
            ConfigError: what is asked for does not go together.
            ManagerError: another one is under way, or there is no such host.
            ChecksError: the operator's checks have mistakes.
        """
        if not asked.is_sound:
            raise ConfigError(
                f"the level {asked.level} sends no flows that could be forced or capped",
                "leave force and cap out, or ask for the level throughput",
            )
        if (progress := self.progress()) is not None:
            raise ManagerError(
                f"audit {progress.number} is under way: {progress.answered} of {progress.hosts} hosts have answered",
                "wait until it is over",
            )
        known, patterns = self._state.members.hosts, asked.hosts
        hosts = [host for host in known if not patterns or any(fnmatchcase(host, each) for each in patterns)]
        if not hosts:
            raise ManagerError("there is no such host to audit", "`cwdp host` shows those that there are")
        checks = self.checks()
        latest = 0 if self.latest is None else self.latest.number
        number = max([*self.files.numbers(), latest, self.shared.last_number]) + 1
        running = Running(_order(number, "facts"), hosts, time.monotonic())
        self._under_way = _UnderWay(number, asked, by, time.time(), checks, running.hosts, running)
        what = (
            f"audit {number} ({asked.level}) of {len(hosts)} host{'s' * (len(hosts) != 1)}{_sending(asked)}"
        )
        self._state.note(FLEET, "audit_started", f"by {by}: {what}", why=why)
        return _progress(self._under_way)

    def progress(self) -> Progress | None:
        """How far the one has come that is under way; None for none."""
        return None if self._under_way is None else _progress(self._under_way)

    def hear(self, report: AuditReport) -> None:
        """A host tells some of its facts."""
        heard = "not_asked" if self._under_way is None else self._under_way.running.hear(report)
        self.counters[heard] += 1

    def hear_flows(self, report: FlowReport) -> None:
        """A host tells what became of flows."""
        throughput = None if self._under_way is None else self._under_way.throughput
        self.counters["not_asked" if throughput is None else throughput.hear(report)] += 1

    async def run(self) -> None:
        """Go on with what is under way, for ever."""
        await self._read_last()
        await first_end(self._make(), self.shared.run())

    async def _make(self) -> None:
        while True:
            if self._under_way is not None:
                await self._go_on(self._under_way)
            await asyncio.sleep(LOOK_S)

    async def _read_last(self) -> None:
        """Have the last one that is kept, unless one is under way, which comes after it."""
        found = await asyncio.to_thread(self._last_kept)
        if self._under_way is None:
            self.latest = found

    def _last_kept(self) -> Finished | None:
        for number in reversed(self.files.numbers()):
            try:
                return self.files.read(number)
            except ManagerError as error:
                _log.warning("passed over error=%s", error)
        return None

    async def _go_on(self, audit: _UnderWay) -> None:
        if audit.throughput is not None:
            if await audit.throughput.go_on():
                await self._finish(audit)
            return
        now_s = time.monotonic()
        orders = audit.running.due(now_s)
        await self._bus.publish_each((down(self._bus.pod, order.host, "audit"), order) for order in orders)
        if not audit.running.is_over(now_s):
            return
        audit.facts |= audit.running.facts
        if audit.needs_walks:
            audit.stage = "walks"
            walks = await asyncio.to_thread(self._network.plan, list(audit.facts.values()), audit.number)
            asks = await asyncio.to_thread(self._network.plan_asks(audit.facts.keys(), audit.number))
            number = _order(audit.number, "walks")
            audit.running = Running(number, audit.facts, time.monotonic(), walks, asks=asks)
            return
        if audit.asked.level != "facts":
            await self._look(audit)
        if audit.needs_flows:
            audit.stage = "flows"
            audit.throughput = await self._throughput(audit)
        else:
            await self._finish(audit)

    async def _look(self, audit: _UnderWay) -> None:
        """At the network as it is before an audit fills links: queues that its own flows make are nobody's fault."""
        facts = await asyncio.to_thread(self._network.wire(list(audit.facts.values())))
        audit.facts = {each.host: each for each in facts}
        audit.network = await asyncio.to_thread(self._network.look(facts, audit.hosts))

    async def _throughput(self, audit: _UnderWay) -> Throughput:
        facts, number = list(audit.facts.values()), int(audit.began_s) * ROUNDS
        return Throughput(
            self._bus,
            await asyncio.to_thread(self._network.ways, facts, number),
            self._network.owners(),
            speeds_of(facts),
            Limits(audit.asked.force, audit.asked.cap_bps),
            number=number,
        )

    async def _finish(self, audit: _UnderWay) -> None:
        facts = list(audit.facts.values())
        silent = sorted(audit.hosts - audit.facts.keys())
        day = today()
        of_facts = await asyncio.to_thread(partial(judge, audit.checks, facts, today=day, silent=silent))
        network, carried = audit.network, None
        if audit.throughput is not None:
            of_flows, carried = await asyncio.to_thread(audit.throughput.judged)
            network = joined(network, of_flows)
        self.latest = Finished(
            number=audit.number,
            level=audit.asked.level,
            by=audit.by,
            began_s=audit.began_s,
            ended_s=time.time(),
            hosts=sorted(audit.hosts),
            audit=joined(of_facts, borne_with(network, audit.checks, day)),
            network=network,
            carried=carried,
        )
        trouble = await self._keep(self.latest, facts)
        self._under_way = None
        self._state.note(FLEET, "audit_over", _in_short(self.latest, trouble))

    async def _keep(self, finished: Finished, facts: Sequence[HostFacts]) -> str:
        """Keep one that is over; what is wrong with that, "" for nothing."""
        try:
            await asyncio.to_thread(self.files.keep, finished, facts)
        except OSError as error:
            return f"it cannot be kept: {error.strerror}"
        trouble = await self.shared.put(finished.number)
        return trouble and f"the bus does not have it: {trouble}"


def _order(number: int, stage: Stage) -> int:
    """The number of an audit's orders: hosts are asked twice where they walk."""
    return 2 * number + (stage == "walks")


def _sending(asked: Asked) -> str:
    """How an audit's flows are to be sent, where that was said."""
    forced = ", on NICs that are in use too" if asked.force else ""
    return forced + (f", each flow of at most {format_rate(asked.cap_bps)}" if asked.cap_bps else "")


def _in_short(finished: Finished, trouble: str) -> str:
    """What an audit came to, for an event, which is cut where it is long: the findings come last."""
    what = f"audit {finished.number} ({finished.level}) by {finished.by}: {in_words(finished.audit)}"
    return "; ".join(filter(None, (what, trouble, gravest_in_words(finished.audit))))


def _progress(audit: _UnderWay) -> Progress:
    running = audit.running
    left_s = running.began_s + running.longest_s - time.monotonic()
    if audit.needs_walks:
        left_s += READING_S + WALKING_S
    if audit.throughput is not None:
        left_s = audit.throughput.left_s
    elif audit.asked.level == "throughput":
        left_s += MOST_S
    course = None if audit.throughput is None else audit.throughput.course
    return Progress(
        number=audit.number,
        level=audit.asked.level,
        stage=audit.stage,
        answered=len(running.facts),
        hosts=len(running.hosts),
        rounds=0 if course is None else course.done,
        most_rounds=0 if course is None else MOST_OF_ALL,
        left_s=max(left_s, 0.0),
    )
