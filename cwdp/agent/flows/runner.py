"""Flows that an audit's rounds order: taken one round at a time, held to bounds, and told."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from cwdp.agent.config import AgentConfig
from cwdp.agent.flows.programs import ProgramError, said_by
from cwdp.agent.flows.protocol import (
    LONGEST_TROUBLE,
    ProgramAnswer,
    ProgramFlow,
    ProgramOrder,
    ProgramTold,
)
from cwdp.agent.flows.traffic import Traffic
from cwdp.agent.hostbus import HostBus
from cwdp.agent.inet import family_of
from cwdp.agent.links import LinkTable
from cwdp.errors import CwdpError
from cwdp.shared.addresses import Address, is_of_a_host, read_address
from cwdp.shared.bus.audits import Flow, FlowOrder, FlowReport, FlowTold

COUNTERS = ("flow_rounds_made", "flow_rounds_refused", "flows_refused")
KIND = "audit-flows"
KEPT_S = 120.0
"""So long an answer is given again to an order that comes again."""

END_S = 10.0
"""After its flows are over a flow program may take so long to end."""

_log = logging.getLogger("cwdp.agent.flows")
BUSY = "the flows of another round are under way on this host"
NS_PER_S = 1_000_000_000


class FlowProgram(Protocol):
    """What sends and receives."""

    async def run(self, order: ProgramOrder) -> Sequence[ProgramTold]:
        """Have the flows made; what came of those that are sent, and of those that could not be received.

        Raises:
            ProgramError: none of it was.
        """


class Holds(Protocol):
    """See `cwdp.agent.steering.steering.DesiredSteering`."""

    def hold(self, ifname: str, peers: Collection[str]) -> None:
        """Steer no other queue pairs of a NIC to these addresses than now."""

    def release(self, ifname: str) -> None:
        """Do as is desired again."""


class Holding(Protocol):
    """See `cwdp.agent.flows.caps.Caps`."""

    def hold(self, nic: str, peers: Collection[str], cap_bps: int) -> None:
        """Hold what goes to some addresses to a rate."""

    def let_go(self, nic: str) -> None:
        """Hold nothing any more."""


class Command:
    """A flow program of the operator's own.

    Args:
        argv: it and its arguments.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv

    async def run(self, order: ProgramOrder) -> Sequence[ProgramTold]:
        """Have the flows made; see `FlowProgram`."""
        within_s = (order.begin_at_ns - time.monotonic_ns()) / NS_PER_S + order.lasts_s + END_S
        said = await said_by(self._argv, msgspec.json.encode(order), within_s)
        try:
            return msgspec.json.decode(said, type=ProgramAnswer).flows
        except msgspec.DecodeError as error:
            raise ProgramError(f"{self._argv[0]} gave no answer that can be read: {error}") from error


class Flows:
    """Takes orders, runs the flow program, and says what came of it.

    Args:
        config: the agent's.
        bus: by which orders come, and reports go.
        links: whose addresses flows have.
        program: makes them; None where there is to be none.
        steering: leaves them on their paths, which the planner might take them off.
        caps: holds them to a cap.

    Attributes:
        counters: totals by name (`COUNTERS`).
    """

    def __init__(
        self,
        config: AgentConfig,
        bus: HostBus,
        links: LinkTable,
        program: FlowProgram | None,
        *,
        steering: Holds,
        caps: Holding,
    ) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._config, self._bus, self._links, self._program = config, bus, links, program
        self._traffic, self._steering, self._caps = Traffic(config), steering, caps
        self._ordered: asyncio.Queue[tuple[FlowOrder, int]] = asyncio.Queue(maxsize=1)
        self._under_way: FlowOrder | None = None
        self._answers: list[tuple[FlowOrder, FlowReport, float]] = []
        bus.hear(KIND, FlowOrder, self._order)

    def _order(self, order: FlowOrder) -> None:
        now_s = time.monotonic()
        self._answers = [kept for kept in self._answers if now_s - kept[2] < KEPT_S]
        for answered, report, _ in self._answers:
            if answered == order:
                self._bus.say(KIND, report)
                return
        if self._under_way is None:
            self._under_way = order
            self._ordered.put_nowait((order, time.monotonic_ns()))
        elif self._under_way.number != order.number:
            self.counters["flow_rounds_refused"] += 1
            self._bus.say(
                KIND, self._report(order, [FlowTold(id=flow.id, trouble=BUSY) for flow in order.flows])
            )

    async def run(self) -> None:
        """Follow orders, for ever."""
        while True:
            order, came_ns = await self._ordered.get()
            told = await self._made(order, came_ns)
            report = self._report(order, told)
            self._under_way = None
            self._answers.append((order, report, time.monotonic()))
            self._bus.say(KIND, report)
            self.counters["flow_rounds_made"] += 1
            self.counters["flows_refused"] += sum(bool(one.trouble) for one in told)

    def _report(self, order: FlowOrder, told: list[FlowTold]) -> FlowReport:
        return FlowReport(host=self._config.host, number=order.number, flows=told)

    async def _made(self, order: FlowOrder, came_ns: int) -> list[FlowTold]:
        """What came of an order's flows."""
        flows, troubles = self._sorted(order.flows)
        if not order.force:
            troubles |= await self._beside_others(flows)
        flows = [flow for flow in flows if flow.id not in troubles]
        capped = {flow.nic for flow in flows if flow.sends and order.cap_bps}
        for nic in sorted(capped):
            troubles |= await self._capped(nic, flows, order.cap_bps)
        flows = [flow for flow in flows if flow.id not in troubles]
        try:
            told = await self._all_told(order, flows, came_ns)
        finally:
            await asyncio.to_thread(self._let_go, capped)
        return [*(FlowTold(id=number, trouble=why) for number, why in troubles.items()), *told]

    async def _capped(self, nic: str, flows: Sequence[ProgramFlow], cap_bps: int) -> dict[int, str]:
        """Hold what a NIC sends to a cap; why flows are not to be made where that cannot be."""
        mine = [flow for flow in flows if flow.nic == nic and flow.sends]
        try:
            await asyncio.to_thread(self._caps.hold, nic, {flow.peer_addr for flow in mine}, cap_bps)
        except ProgramError as why:
            return {flow.id: str(why) for flow in mine}
        except CwdpError as error:
            return {flow.id: f"no cap can be held on {nic}: {error.message}" for flow in mine}
        return {}

    def _let_go(self, capped: Collection[str]) -> None:
        for nic in capped:
            try:
                self._caps.let_go(nic)
            except CwdpError as error:
                _log.warning("a cap is held on nic=%s error=%s", nic, error.message)

    async def _all_told(self, order: FlowOrder, flows: list[ProgramFlow], came_ns: int) -> list[FlowTold]:
        """What came of flows that can be made."""
        if flows:
            begin_at_ns = came_ns + round(order.begin_s * NS_PER_S)
            asked = ProgramOrder(
                number=order.number,
                begin_s=max(0.0, (begin_at_ns - time.monotonic_ns()) / NS_PER_S),
                begin_at_ns=begin_at_ns,
                lasts_s=order.lasts_s,
                cap_bps=order.cap_bps,
                flows=flows,
            )
            return await self._told(asked)
        return []

    def _sorted(self, asked: Sequence[Flow]) -> tuple[list[ProgramFlow], dict[int, str]]:
        """The flows that can be made, and why the others cannot."""
        flows: dict[int, ProgramFlow] = {}
        troubles: dict[int, str] = {}
        for flow in asked:
            if flow.id in flows:
                troubles[flow.id] = "two flows have this number"
                continue
            try:
                flows[flow.id] = self._flow(flow)
            except ProgramError as why:
                troubles[flow.id] = str(why)
        return [flow for number, flow in flows.items() if number not in troubles], troubles

    def _flow(self, flow: Flow) -> ProgramFlow:
        """A flow as the program has it; raises ProgramError where it cannot be."""
        if self._config.observe_only:
            raise ProgramError("the agent of this host only observes")
        if self._program is None:
            raise ProgramError("the agent's configuration allows no flow program")
        if flow.nic not in self._config.nics:
            raise ProgramError(f"{flow.nic} is none of the agent's NICs")
        peer = _peer(flow.peer_addr)
        link = self._links.get(flow.nic)
        if link is None:
            raise ProgramError(f"there is no interface {flow.nic}")
        if not link.carrier:
            raise ProgramError(f"{flow.nic} has no carrier")
        local = link.address(family_of(str(peer)))
        if local is None:
            raise ProgramError(f"{flow.nic} has no IPv{peer.version} address")
        return ProgramFlow(
            id=flow.id,
            nic=flow.nic,
            local_addr=local,
            peer_addr=str(peer),
            sends=flow.sends,
            sport=flow.sport,
        )

    async def _beside_others(self, flows: Sequence[ProgramFlow]) -> dict[int, str]:
        """Why flows are not to be made on NICs on which queue pairs send."""
        why: dict[str, str] = {}
        for nic in sorted({flow.nic for flow in flows}):
            try:
                if await self._traffic.sends(nic):
                    why[nic] = f"queue pairs send on {nic}"
            except CwdpError as error:
                why[nic] = f"whether queue pairs send on {nic} cannot be told: {error.message}"
            except OSError as error:
                why[nic] = f"whether queue pairs send on {nic} cannot be told: {error.strerror}"
        return {flow.id: why[flow.nic] for flow in flows if flow.nic in why}

    async def _told(self, asked: ProgramOrder) -> list[FlowTold]:
        """What the program says of its flows; of each that was to be sent something."""
        assert self._program is not None
        peers: dict[str, set[str]] = {}
        for flow in asked.flows:
            peers.setdefault(flow.nic, set()).add(flow.peer_addr)
        for nic, addresses in peers.items():
            self._steering.hold(nic, addresses)
        try:
            said = {one.id: one for one in await self._program.run(asked)}
        except ProgramError as error:
            return [FlowTold(id=flow.id, trouble=_in_short(str(error))) for flow in asked.flows]
        finally:
            for nic, addresses in peers.items():
                self._steering.release(nic)
                self._traffic.flows_ended(nic, {read_address(address) for address in addresses})
        return [told for flow in asked.flows if (told := _told_of(flow, said))]


def _peer(text: str) -> Address:
    try:
        peer = read_address(text)
    except ValueError:
        raise ProgramError(f"{text!r} is no address") from None
    if not is_of_a_host(peer):
        raise ProgramError(f"{peer} is no address of a host in the fabric")
    return peer


def _told_of(flow: ProgramFlow, said: Mapping[int, ProgramTold]) -> FlowTold | None:
    """What is told of a flow; nothing of one that is received as it should be."""
    told = said.get(flow.id)
    if flow.sends and told is None:
        return FlowTold(id=flow.id, trouble="the flow program said nothing of it")
    if told is None or not (flow.sends or told.trouble):
        return None
    return FlowTold(
        id=flow.id,
        carried_bytes=told.carried_bytes,
        took_s=told.took_s,
        trouble=_in_short(told.trouble),
    )


def _in_short(text: str) -> str:
    """A text of somebody else's, as one line of bounded length."""
    return " ".join(text.split())[:LONGEST_TROUBLE]
