"""A round of flows: what hosts are ordered, and what they have told of it. Pure: time is an argument."""

from collections.abc import Mapping
from dataclasses import dataclass

from cwdp.shared.bus.audits import LATE, Flow, FlowOrder, FlowReport, FlowTold
from manager.audit.service.running import Heard
from manager.audit.throughput.ways import Ways

LASTS_S = 2.0
TELLING_S = 10.0
"""After a round's end hosts have so long to tell."""

NOT_TOLD = "its host has told nothing of the flow"


@dataclass(frozen=True)
class Limits:
    """What people allow.

    Attributes:
        force: flows also on NICs on which queue pairs send.
        cap_bps: no flow exceeds this; 0 for no cap.
        begin_s: who receives has so long to be ready.
    """

    force: bool = False
    cap_bps: int = 0
    begin_s: float = 2.0


class FlowRound:
    """The hosts of one round.

    Args:
        number: of the orders.
        ways: the paths.
        rows: those that are sent over.
        addresses: of NICs: the one that each is sent to.
        limits: of all flows.
        began_s: the manager's monotonic clock.
    """

    def __init__(
        self,
        number: int,
        ways: Ways,
        rows: tuple[int, ...],
        addresses: Mapping[str, str],
        limits: Limits,
        *,
        began_s: float,
    ) -> None:
        self.number, self.began_s, self._ways, self._limits = number, began_s, ways, limits
        self._rows = dict(enumerate(rows, start=1))
        self._flows: dict[str, list[Flow]] = {}
        for number_of, row in self._rows.items():
            self._add(number_of, row, addresses)
        self._told: dict[str, dict[int, FlowTold]] = {}

    def _add(self, flow: int, row: int, addresses: Mapping[str, str]) -> None:
        name, (src, dst) = self._ways.names[row], self._ways.ends(row)
        ends = (src, name.dst_addr, True), (dst, addresses[src], False)
        for nic, peer_addr, sends in ends:
            host, _, ifname = nic.partition("/")
            mine = Flow(id=flow, nic=ifname, peer_addr=peer_addr, sends=sends, sport=name.sport)
            self._flows.setdefault(host, []).append(mine)

    def orders(self) -> list[FlowOrder]:
        """What each host is told."""
        return [
            FlowOrder(
                host=host,
                number=self.number,
                begin_s=self._limits.begin_s,
                lasts_s=LASTS_S,
                cap_bps=self._limits.cap_bps,
                force=self._limits.force,
                flows=flows,
            )
            for host, flows in self._flows.items()
        ]

    def hear(self, report: FlowReport) -> Heard:
        """A host tells what became of its flows."""
        if report.number != self.number or report.host not in self._flows or report.host in self._told:
            return "not_asked"
        self._told[report.host] = {one.id: one for one in report.flows}
        return "ok"

    def is_over(self, now_s: float) -> bool:
        """Whether all have told, or those that have not will tell no more."""
        longest_s = self._limits.begin_s + LASTS_S + TELLING_S
        return len(self._told) == len(self._flows) or now_s - self.began_s >= longest_s

    @property
    def was_late(self) -> bool:
        """Whether somebody was not ready in time."""
        return any(one.trouble == LATE for told in self._told.values() for one in told.values())

    def bps(self) -> dict[int, float]:
        """What each path carried that was measured."""
        found = {}
        for flow, row in self._rows.items():
            src, _ = self._ways.ends(row)
            told = self._told.get(src.partition("/")[0], {}).get(flow)
            if told is not None and not told.trouble and told.took_s > 0:
                found[row] = 8 * told.carried_bytes / told.took_s
        return found

    def troubles(self) -> dict[int, tuple[str, str]]:
        """The flows that did not run, by their paths: the NIC that is in the way, and why.

        That is the receiver where it says so, as who sends to it can know no more than that nothing answers.
        """
        ran, found = self.bps(), {}
        for flow, row in self._rows.items():
            src, dst = self._ways.ends(row)
            of_dst, of_src = self._trouble(dst, flow, ""), self._trouble(src, flow, NOT_TOLD)
            if row not in ran and LATE not in {of_src, of_dst}:
                found[row] = (dst, of_dst) if of_dst else (src, of_src)
        return found

    def _trouble(self, nic: str, flow: int, else_: str) -> str:
        told = self._told.get(nic.partition("/")[0])
        if told is None:
            return NOT_TOLD
        return told[flow].trouble if flow in told else else_
