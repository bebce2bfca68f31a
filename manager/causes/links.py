"""What is known of the links that jobs use, read from the manager's state. No I/O."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from manager.causes.cause import Links
from manager.causes.crossed import links_of
from manager.faults.finding import Finding
from manager.faults.link_watch import LinkWatch
from manager.hosts.members import Members
from manager.jobs.flows import Flow
from manager.links.loads import LinkLoads, tiers
from manager.queue_pairs.traffic import Traffic

Crossed = Callable[[Iterable[Flow]], dict[Flow, frozenset[int]]]


class LinksNow:
    """Reads it.

    Args:
        watch: the links of the fabric.
        traffic: what queue pairs do.
        members: which NIC has which address.
    """

    def __init__(self, watch: LinkWatch, traffic: Traffic, members: Members) -> None:
        self._watch, self._traffic, self._members = watch, traffic, members

    def __call__(self) -> Callable[[Iterable[Flow]], Links]:
        """What tells of the links of flows as they are now, in any thread; before there is a model, only of what is wrong."""
        loads, findings = self._watch.loads, list(self._watch.findings.current.values())
        meter = self._watch.meter
        if meter is None or meter.routes is not loads.routes:
            return lambda _: Links(findings=findings)
        rows = {nic: table.rows for nic, table in self._traffic.queue_pairs.tables.items()}
        nics = self._members.nics_by_packed_address
        crossed = partial(links_of, known=dict(meter.known), tables=rows, nics=nics)
        return partial(_links, loads, findings, crossed)


def _links(loads: LinkLoads, findings: Sequence[Finding], crossed: Crossed, flows: Iterable[Flow]) -> Links:
    return Links(
        names=loads.routes.links,
        tier=tiers(loads.routes.links),
        queue_p99_ns=loads.queue_p99_ns,
        of=crossed(flows),
        findings=findings,
    )
