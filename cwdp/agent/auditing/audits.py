"""Facts of this host, read by processes of their own when the manager asks for them, and walks, asks and flows that it orders."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from cwdp.agent.auditing.asking import Asking, AskingNic
from cwdp.agent.auditing.reaching import reached
from cwdp.agent.config import AgentConfig
from cwdp.agent.flows.caps import Caps
from cwdp.agent.flows.perftest import Perftest
from cwdp.agent.flows.runner import Command, FlowProgram, Flows
from cwdp.agent.hostbus import HostBus
from cwdp.agent.links import LinkTable
from cwdp.agent.steering.steering import DesiredSteering
from cwdp.agent.walking.walker import Walks
from cwdp.audit.collecting import Wanted, collect
from cwdp.rdma.libraries import VERBS, library
from cwdp.shared.audit.facts import HostFacts, Value
from cwdp.shared.bus.audits import AuditOrder, AuditReport, audit_reports

COUNTERS = ("audits_told", "audits_failed")


class Audits:
    """Does as the manager orders: one audit at a time, an order that comes again begins nothing.

    Args:
        config: names the NICs, and their roles.
        bus: by which orders come, and facts go.
        links: whose addresses the packets of walks have.
        steering: chooses the paths of flows.
        nics: that can ask.
    """

    def __init__(
        self,
        config: AgentConfig,
        bus: HostBus,
        links: LinkTable,
        steering: DesiredSteering,
        nics: Sequence[AskingNic] = (),
    ) -> None:
        self._walks = Walks(config.nics, links, config.probe_port)
        self._flows = Flows(
            config, bus, links, _flow_program(config, steering), steering=steering, caps=Caps(config.xdp_nics)
        )
        self._own: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._asking = Asking(nics, self._own)
        self._bus = bus
        self._wanted = Wanted(host=config.host, roles={**dict.fromkeys(config.nics, "back"), **config.roles})
        self._ordered: asyncio.Queue[AuditOrder] = asyncio.Queue(maxsize=1)
        self._number = 0
        bus.hear("audit", AuditOrder, self._order)

    def _order(self, order: AuditOrder) -> None:
        if order.number != self._number:
            with contextlib.suppress(asyncio.QueueFull):
                self._ordered.put_nowait(order)
                self._number = order.number

    @property
    def counters(self) -> Counter[str]:
        """Totals by name: `COUNTERS`, and those of `Walks` and `Flows`."""
        return Counter({**self._own, **self._walks.counters, **self._flows.counters})

    async def run(self) -> None:
        """Follow orders, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flows.run())
            group.create_task(self._audit())

    async def _audit(self) -> None:
        while True:
            order = await self._ordered.get()
            await asyncio.sleep(random.random() * order.within_s)  # noqa: S311 - not a secret
            try:
                reports = await self._reports(order)
            except* (OSError, ValueError):
                self._own["audits_failed"] += 1
            else:
                for report in reports:
                    self._bus.say("audit", report)
                self._own["audits_told"] += 1
            self._number = 0  # who asks again has not heard

    async def _reports(self, order: AuditOrder) -> list[AuditReport]:
        """Facts, walks, who is reached and what else, at the same time: each has its own bound.

        Raises:
            OSError: no process can be started.
            ValueError: it is more than is told.
        """
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(collect(self._wanted))
            walking = group.create_task(self._walks.make(order.walks))
            asking = group.create_task(self._asking.make(order.ask)) if order.ask else None
            reaching = group.create_task(reached(self._bus.ping)) if order.reach else None
        facts = reading.result()
        if reaching is not None:
            facts = _with(facts, *reaching.result())
        asked = None if asking is None else asking.result()
        facts = msgspec.structs.replace(facts, walks=walking.result(), asked=asked)
        return audit_reports(order.number, facts)


def _with(told: HostFacts, facts: Mapping[str, Value], missing: Mapping[str, str]) -> HostFacts:
    """More of the host itself."""
    subjects = [
        one
        if one.kind != "host"
        else msgspec.structs.replace(one, facts={**one.facts, **facts}, missing={**one.missing, **missing})
        for one in told.subjects
    ]
    return msgspec.structs.replace(told, subjects=subjects)


def _flow_program(config: AgentConfig, steering: DesiredSteering) -> FlowProgram | None:
    match config.flows.program:
        case "none":
            return None
        case "perftest":
            return Perftest(config.xdp_nics, steering, shim=library(VERBS))
        case command:
            return Command(command)
