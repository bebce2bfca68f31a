"""Audits as the manager has them made: it asks hosts, waits, judges in a thread, keeps what came of it."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from msgspec import Struct

from cwdp.errors import ManagerError
from cwdp.shared.bus.audits import AuditOrder, AuditReport
from cwdp.shared.bus.connection import Bus
from cwdp.shared.bus.subjects import down
from manager.audit.checks.loading import load_checks
from manager.audit.checks.model import Checks
from manager.audit.judging.judge import judge
from manager.audit.levels import Level
from manager.audit.service.kept import Files, Finished
from manager.audit.service.running import HEARD, Running
from manager.audit.summary import in_words
from manager.audit.today import today
from manager.config import ManagerConfig
from manager.planner.events import FLEET

LOOK_S = 0.1

_log = logging.getLogger("cwdp.manager.audit")


class Progress(Struct, frozen=True, kw_only=True):
    """How far an audit has come.

    Attributes:
        answered, hosts: how many have told all, and how many were asked.
        left_s: for so long it may take at most.
    """

    number: int
    level: Level
    answered: int
    hosts: int
    left_s: float


class Audits:
    """The audits of one pod.

    Args:
        bus: to ask hosts by.
        hosts: all that are known, whether they are up or not.
        note: keeps an event.
        config: says where audits are kept, and where the operator's checks and waivers are.

    Attributes:
        counters: reports by what became of them (`HEARD`).
        latest: the last one that is over; None for none.
    """

    def __init__(
        self,
        bus: Bus,
        hosts: Callable[[], Iterable[str]],
        note: Callable[[str, str, str], None],
        config: ManagerConfig,
    ) -> None:
        self._bus, self._hosts, self._note = bus, hosts, note
        self.files, self._checks_folder = Files(Path(config.state_dir) / "audits"), Path(config.checks)
        self.counters: Counter[str] = Counter(dict.fromkeys(HEARD, 0))
        self.latest: Finished | None = None
        self._running: Running | None = None
        self._how: tuple[Level, str, float, Checks] | None = None

    def checks(self) -> Checks:
        """The default checks and the operator's.

        Raises:
            ChecksError: some have mistakes.
        """
        return load_checks(sorted(self._checks_folder.glob("*.toml")))

    def begin(self, level: Level, patterns: Sequence[str], by: str) -> Progress:
        """Have hosts audited.

        Args:
            level: how far to go.
            patterns: of names of hosts; none for all.
            by: who wants it.

        Raises:
            ManagerError: another one is under way, or there is no such host.
            ChecksError: the operator's checks have mistakes.
        """
        if (progress := self.progress()) is not None:
            raise ManagerError(
                f"audit {progress.number} is under way: {progress.answered} of {progress.hosts} hosts have answered",
                "wait until it is over",
            )
        hosts = [
            host
            for host in self._hosts()
            if not patterns or any(fnmatchcase(host, each) for each in patterns)
        ]
        if not hosts:
            raise ManagerError("there is no such host to audit", "`cwdp host` shows those that there are")
        self._how = level, by, time.time(), self.checks()
        number = max([*self.files.numbers(), 0 if self.latest is None else self.latest.number]) + 1
        self._running = Running(number, hosts, time.monotonic())
        found = self.progress()
        assert found is not None
        return found

    def progress(self) -> Progress | None:
        """How far the one has come that is under way; None for none."""
        running = self._running
        if running is None or self._how is None:
            return None
        left_s = max(running.began_s + running.longest_s - time.monotonic(), 0.0)
        return Progress(
            number=running.number,
            level=self._how[0],
            answered=len(running.facts),
            hosts=len(running.hosts),
            left_s=left_s,
        )

    def hear(self, report: AuditReport) -> None:
        """A host tells some of its facts."""
        heard = "not_asked" if self._running is None else self._running.hear(report)
        self.counters[heard] += 1

    async def run(self) -> None:
        """Go on with what is under way, for ever."""
        self.latest = await asyncio.to_thread(self._last_kept)
        while True:
            if self._running is not None:
                await self._go_on(self._running)
            await asyncio.sleep(LOOK_S)

    def _last_kept(self) -> Finished | None:
        for number in reversed(self.files.numbers()):
            try:
                return self.files.read(number)
            except ManagerError as error:
                _log.warning("passed over error=%s", error)
        return None

    async def _go_on(self, running: Running) -> None:
        now_s = time.monotonic()
        await self._bus.publish_each(
            (
                down(self._bus.pod, host, "audit"),
                AuditOrder(host=host, number=running.number, within_s=running.within_s),
            )
            for host in running.due(now_s)
        )
        if running.is_over(now_s):
            await self._finish(running)

    async def _finish(self, running: Running) -> None:
        assert self._how is not None
        level, by, began_s, checks = self._how
        facts = list(running.facts.values())
        verdicts = await asyncio.to_thread(
            partial(judge, checks, facts, today=today(), silent=running.waits_for())
        )
        self.latest = Finished(
            number=running.number,
            level=level,
            by=by,
            began_s=began_s,
            ended_s=time.time(),
            hosts=sorted(running.hosts),
            audit=verdicts,
        )
        self._running = self._how = None
        what = f"audit {running.number} of {len(running.hosts)} hosts ({level}) by {by}: {in_words(verdicts)}"
        try:
            await asyncio.to_thread(self.files.keep, self.latest, facts)
        except OSError as error:
            what = f"{what}; it cannot be kept: {error.strerror}"
        self._note(FLEET, "audit_over", what)
