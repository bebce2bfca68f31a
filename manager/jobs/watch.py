"""The jobs of the fleet as they are now. No I/O; what takes long can be done in a thread, over copies."""

from collections.abc import Mapping, Sequence

from cwdp.shared.bus.messages import nic_id
from manager.hosts.members import Members
from manager.jobs.flows import Flow
from manager.jobs.inference import Job, infer
from manager.jobs.membership import Owner, Owners
from manager.jobs.steps import Steps
from manager.queue_pairs.traffic import Traffic
from manager.queue_pairs.verbs import VerbsStore

LOOKED_INTO_EVERY_S = 60.0
"""So often it is found out anew who is together; not while packets are sent again, as that upsets the rhythm."""


class JobWatch:
    """Infers jobs again and again.

    Args:
        traffic: what queue pairs do.
        members: which NIC has which address.

    Attributes:
        jobs: those of most NICs first.
    """

    def __init__(self, traffic: Traffic, members: Members) -> None:
        self.jobs: Sequence[Job] = ()
        self._traffic, self._members = traffic, members
        self._looked_into_s = -LOOKED_INTO_EVERY_S

    def due(self, now_s: float) -> Steps[list[Job]] | None:
        """What infers them, from what is known now, each step in any thread; None where nothing is."""
        now_ns = self._traffic.timeline_ns(now_s)
        rings = {} if now_ns is None else self._traffic.bursts.now()
        if now_ns is None or not rings:
            self.jobs = ()
            return None
        nics = self._members.nics_by_packed_address
        owners = owners_of(self._traffic.verbs, nics)
        is_due = now_s - self._looked_into_s >= LOOKED_INTO_EVERY_S
        is_anew = is_due and not any(job.lately.loses for job in self.jobs)
        if is_anew:
            self._looked_into_s = now_s
        return infer(rings, nics, owners, now_ns, () if is_anew else self.jobs)

    def take(self, jobs: Sequence[Job]) -> None:
        """These were inferred."""
        self.jobs = jobs


def owners_of(verbs: VerbsStore, nics: Mapping[bytes, str]) -> dict[Flow, Owners]:
    """Whose the ends of flows are, as far as programs have told.

    Args:
        verbs: what they have told.
        nics: the NIC that has each packed address.
    """
    senders: dict[Flow, Owner] = {}
    receivers: dict[Flow, Owner] = {}
    for name, (addr, qpn), qp in verbs.each():
        here, far = nic_id(*name), nics.get(addr)
        if far is not None and qp.pid:
            owner = Owner(name[0], qp.pid, qp.job)
            senders[Flow(here, far, qpn)] = receivers[Flow(far, here, qp.lqpn)] = owner
    return {flow: (senders.get(flow), receivers.get(flow)) for flow in senders.keys() | receivers.keys()}
