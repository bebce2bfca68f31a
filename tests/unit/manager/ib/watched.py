"""Who judges a subnet in tests, polled once a second."""

from dataclasses import dataclass, field

from cwdp.shared.ib.counters import Growth
from cwdp.shared.ib.names import Names
from cwdp.shared.ib.subnet import Subnet
from manager.faults.finding import Findings
from manager.ib.faults.watch import SubnetFaults


@dataclass
class Watched:
    """Attributes: `events` are what was told, oldest first."""

    events: list[tuple[str, str]] = field(default_factory=list)
    now_s: float = 1_000.0

    def __post_init__(self) -> None:
        self.findings = Findings()
        self.faults = SubnetFaults(self.findings, self._note)

    def _note(self, host: str, kind: str, detail: str, *, nic: str | None = None) -> None:
        del host, nic
        self.events.append((kind, detail))

    def poll(self, subnet: Subnet, growth: Growth | None) -> None:
        self.now_s += 1.0
        self.faults.hear(subnet, Names(subnet), growth, self.now_s)

    @property
    def found(self) -> set[tuple[str, str]]:
        """Kinds and subjects of what holds."""
        return {(each.kind, each.subject.name) for each in self.findings.current.values()}
