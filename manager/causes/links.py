"""What is known of the links that jobs use, read from the manager's state. No I/O."""

from collections.abc import Iterable

from manager.causes.cause import Links
from manager.causes.crossed import links_of
from manager.faults.link_watch import LinkWatch
from manager.hosts.members import Members
from manager.jobs.flows import Flow
from manager.links.loads import tiers
from manager.queue_pairs.traffic import Traffic


class LinksOf:
    """Reads it.

    Args:
        watch: the links of the fabric.
        traffic: what queue pairs do.
        members: which NIC has which address.
    """

    def __init__(self, watch: LinkWatch, traffic: Traffic, members: Members) -> None:
        self._watch, self._traffic, self._members = watch, traffic, members

    def __call__(self, flows: Iterable[Flow]) -> Links:
        """As it is now; of links that no model knows yet nothing but what is wrong with them."""
        loads, findings = self._watch.loads, list(self._watch.findings.current.values())
        meter = self._watch.meter
        if meter is None or meter.routes is not loads.routes:
            return Links(findings=findings)
        tables = self._traffic.queue_pairs.tables
        return Links(
            names=loads.routes.links,
            tier=tiers(loads.routes.links),
            queue_p99_ns=loads.queue_p99_ns,
            of=links_of(flows, meter.known, tables, self._members.nics_by_packed_address),
            findings=findings,
        )
