"""The jobs of the fleet as they are now. No I/O; what takes long can be done in a thread, over copies."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from cwdp.shared.bus.messages import nic_id
from manager.hosts.members import Members
from manager.jobs.flows import Flow, NicName, Rows
from manager.jobs.inference import Inferred, Job, infer
from manager.jobs.membership import Owner, Owners
from manager.jobs.steps import Steps
from manager.queue_pairs.traffic import Traffic
from manager.queue_pairs.verbs import VerbsStore

LOOKED_INTO_EVERY_S = 60.0
"""So often it is found out anew who is together; not while packets are sent again, as that upsets the rhythm."""


class ToldBursts(NamedTuple):
    """Bursts of hosts on which none are seen, and whose they are.

    Attributes:
        rings: of each NIC, dtype BURST_ROW, shape (n,).
        owners: whose the ends of these flows are.
    """

    rings: Mapping[NicName, Rows]
    owners: Mapping[Flow, Owners]


Seen = Mapping[NicName, Rows]
Known = Mapping[Flow, Owners]
Addresses = Mapping[bytes, str]
"""The NIC that has each packed address."""

Told = Callable[[Seen, Known, Addresses], ToldBursts]
"""Takes the bursts that are seen, and whose flows are as far as that is known; any thread may ask."""


class JobWatch:
    """Infers jobs again and again.

    Args:
        traffic: what queue pairs do.
        members: which NIC has which address.
        told: what ranks tell of their bursts, by the timeline now; None where they tell nothing.

    Attributes:
        jobs, strays, pauses_s: as `Inferred` has them.
        told_rings: bursts by which they are known that were told and not seen, of each NIC, dtype BURST_ROW, shape (n,).
    """

    def __init__(self, traffic: Traffic, members: Members, told: Callable[[int], Told | None]) -> None:
        self.jobs: Sequence[Job] = ()
        self.strays: Mapping[Flow, int] = {}
        self.pauses_s: Mapping[Flow, float] = {}
        self.told_rings: Mapping[NicName, Rows] = {}
        self._traffic, self._members, self._told = traffic, members, told
        self._looked_into_s = -LOOKED_INTO_EVERY_S

    def due(self, now_s: float) -> Steps[Inferred] | None:
        """What infers them, from what is known now, each step in any thread; None where nothing is."""
        now_ns = self._traffic.timeline_ns(now_s)
        rings = {} if now_ns is None else self._traffic.bursts.now()
        told = None if now_ns is None else self._told(now_ns)
        if now_ns is None or not (rings or told):
            self.take(Inferred())
            return None
        nics = self._members.nics_by_packed_address
        owners = owners_of(self._traffic.verbs, nics)
        is_due = now_s - self._looked_into_s >= LOOKED_INTO_EVERY_S
        is_anew = is_due and not any(job.lately.loses for job in self.jobs)
        if is_anew:
            self._looked_into_s = now_s
        before = () if is_anew else self.jobs
        if told is None:
            self.told_rings = {}
            return infer(rings, nics, owners, now_ns, before)
        return self._with_told(told, rings, owners, nics, partial(infer, now_ns=now_ns, before=before))

    def _with_told(
        self,
        told: Told,
        seen: Seen,
        known: Known,
        nics: Addresses,
        infer_from: Callable[..., Steps[Inferred]],
    ) -> Steps[Inferred]:
        """What is inferred from what is seen and what is told beside."""
        more = told(seen, known, nics)
        self.told_rings = more.rings
        yield
        return (yield from infer_from({**more.rings, **seen}, nics, {**known, **more.owners}))

    def take(self, found: Inferred) -> None:
        """This was inferred."""
        self.jobs, self.strays, self.pauses_s = found


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
