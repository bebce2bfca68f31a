"""The first rule that holds says why a job is slow. Pure.

What the fabric's probes have found comes first, then who makes the others wait, then where packets are lost or wait.
Every rule says what an iteration would gain without its cause. A fault on the job's way that makes its packets be sent again is told
before iterations are longer: they soon are.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cwdp.shared.bus.messages import host_of
from manager.causes.cause import Cause, Kind, Links
from manager.causes.ranks import Told
from manager.fabric.routes import DirectedLink, is_between_switches, is_nic
from manager.faults.finding import Finding
from manager.hosts.order import in_order
from manager.jobs.flows import Flow
from manager.jobs.inference import Job
from manager.jobs.pauses import Pauses
from manager.jobs.stragglers import Lateness
from manager.jobs.symptoms import LOSING_SHARE

SLOWER_SHARE = 0.04
"""Iterations that take longer by less are as they were."""

UNLIKE = 3.0
"""A queue is so many times the median of links of its kind."""

LEAST_QUEUE_NS = 20_000.0
MANY_SENDERS = 3

LITTLE_SHARE, MOST_NAMED = 0.1, 3
"""Of what a job sends over a link: who sends less beside it does not slow it; and hosts of these that are named."""

BUSY_SHARE, BUSY_UNLIKE = 0.15, 5.0
"""Of the time: so much longer than on a job's other hosts programs wait where the processor is taken; and so many times the median
absolute deviation of these."""

LEAST_HOSTS = 3

REFUSED_SHARE = 0.003
"""Of the packets of a NIC to another one: so many RNR NAKs come back where that one has posted too few receives."""

GONE = ("dead", "silent")
LEFT = (*GONE, "lossy")
"""Where there are others, the planner sends nothing over them."""

ABOUT_HOSTS = ("slow_sender", "slow_receiver")

OF_THE_HOUR = "flapping"
"""Told for long after a link is well again; while it is gone, that is found of it as well."""


NotReady = Mapping[tuple[str, str], int]


@dataclass(frozen=True, eq=False)
class Case:
    """A job that is looked at.

    Attributes:
        name: of the job.
        job: what is known of it.
        usual_ns: what an iteration took at its best of late; None where that is not known.
        links: what is known of the fabric.
        others: all other jobs, by name.
        waits: the share of the time in which programs of each host waited for a processor.
        not_ready: RNR NAKs of late, by the NIC that sent them and the one that they came to.
        told: what its ranks tell; None where they do not.
    """

    name: str
    job: Job
    usual_ns: float | None
    links: Links
    others: Sequence[tuple[str, Job]] = ()
    waits: Mapping[str, float] = field(default_factory=dict)
    not_ready: NotReady = field(default_factory=dict)
    told: Told | None = None

    @property
    def late(self) -> list[Lateness]:
        """Who makes the others wait, the latest first; where ranks tell, as they do."""
        known = self.job.lately.late if self.told is None else self.told.late
        return [one for one in known if one.is_straggler]

    @property
    def pauses(self) -> Pauses | None:
        """Who stands still now and then."""
        told = None if self.told is None else self.told.pauses
        return told or self.job.lately.pauses

    @property
    def longer_ns(self) -> float:
        """By how much an iteration takes longer than usual; 0 where that is not known."""
        recent_ns = self.job.lately.recent_ns
        if self.usual_ns is None or recent_ns is None:
            return 0.0
        return max(recent_ns - self.usual_ns, 0.0)

    @property
    def is_slower(self) -> bool:
        """Whether it takes longer than usual by enough to speak of."""
        return self.usual_ns is not None and self.longer_ns > SLOWER_SHARE * self.usual_ns

    def resent_share(self, flows: Iterable[Flow]) -> float:
        """The share of packets of some flows that were lost and sent again; of the flow with most.

        What its receiver was not ready for is sent again as well, and has not been lost.
        """
        lately = self.job.lately
        return max(
            (
                lately.resent.get(flow, 0) / max(lately.sent.get(flow, 0), 1)
                for flow in flows
                if not self.is_refused(flow.src, flow.dst)
            ),
            default=0.0,
        )

    def is_refused(self, src: str, dst: str) -> bool:
        """Whether a NIC often was not ready for what another one sent it."""
        if (dst, src) not in self.not_ready:
            return False
        sent = sum(count for flow, count in self.job.lately.sent.items() if flow[:2] == (src, dst))
        return self.not_ready[dst, src] > REFUSED_SHARE * sent

    def over(self, links: Collection[int]) -> list[Flow]:
        """Flows of the job that cross one of some links."""
        return [flow for flow in self.job.flows if not self.links.crossed(flow).isdisjoint(links)]

    @property
    def crossed(self) -> set[int]:
        """The links that flows of the job cross."""
        return {i for flow in self.job.flows for i in self.links.crossed(flow)}

    def of_nic(self, nic: str) -> list[Flow]:
        """Flows of the job that a NIC sends or receives."""
        return [flow for flow in self.job.flows if nic in (flow.src, flow.dst)]


def explain(case: Case) -> Cause | None:
    """Why a job's iterations take longer than they need to; None where nothing says that they do."""
    rules = (*RULES, *RULES_OF_SLOWER) if case.is_slower and not case.job.lately.is_over else RULES
    found = next((cause for rule in rules if (cause := rule(case)) is not None), None)
    if found is None:
        return None
    return replace(found, confidence=round(found.confidence * case.job.confidence, 3))


def _fault(case: Case) -> Cause | None:
    """What cwdp's probes have found, on the job's way; what nothing goes over any more as well, if something went over it then."""
    for finding in case.links.findings:
        if finding.kind == OF_THE_HOUR:
            continue
        flows = _of_host(case, finding) if finding.kind in ABOUT_HOSTS else _over_lately(case, finding)
        resent = case.resent_share(flows)
        if flows and (finding.kind in GONE or case.is_slower or resent > LOSING_SHARE):
            found = _found(case, finding, resent)
            return replace(
                found, evidence=(*found.evidence, f"{len(flows)} queue pairs of the job cross it, or did")
            )
    return None


def _found(case: Case, finding: Finding, resent: float) -> Cause:
    said = [f"{finding.kind}: {each}" for each in finding.evidence[:2]] or [finding.kind]
    if resent > 0:
        said.append(f"{resent:.1%} of the packets of a queue pair over it were sent again")
    lately, costs_ns = case.job.lately, case.longer_ns
    if finding.kind in GONE and lately.median_ns is not None:
        costs_ns = max(costs_ns, float(lately.lasted_ns.max() - lately.median_ns))
    kind: Kind = "host" if finding.kind in ABOUT_HOSTS else "nic" if finding.subject.kind == "nic" else "link"
    nic = next((node for link in finding.subject.links for node in link if is_nic(node)), "")
    return Cause(kind, finding.subject.name, nic, round(costs_ns), finding.confidence, tuple(said))


def _processor(case: Case) -> Cause | None:
    """A host's programs wait for a processor, much more than those of the job's other hosts, and the job waits for it or is slower."""
    hosts = {host_of(nic) for nic in case.job.members}
    waits = {host: case.waits[host] for host in hosts if host in case.waits}
    if len(waits) < LEAST_HOSTS:
        return None
    host = max(sorted(waits), key=waits.__getitem__)
    shares = np.array([share for other, share in waits.items() if other != host])
    others = float(np.median(shares))
    apart = float(np.median(np.abs(shares - others)))
    if waits[host] - others < max(BUSY_SHARE, BUSY_UNLIKE * apart):
        return None
    pauses = case.pauses
    late = [each for each in case.late if host_of(each.nic) == host]
    stands_still = pauses is not None and host_of(pauses.nic) == host
    if not (late or stands_still or case.is_slower):
        return None
    rank = late[0].nic if late else next(nic for nic in case.job.members if host_of(nic) == host)
    said = [
        f"its programs waited for a processor in {waits[host]:.0%} of the last seconds",
        f"those of the job's other hosts in {others:.0%}",
    ]
    costs_ns = max(case.longer_ns, late[0].late_ns if late else 0)
    return Cause("host", rank, rank, round(costs_ns), 0.9, tuple(said))


def _compute(case: Case) -> Cause | None:
    """A rank begins to send late, and what it sends and is sent meets nothing."""
    for late in case.late:
        if case.resent_share(case.of_nic(late.nic)) <= LOSING_SHARE:
            begins = f"the data of {late.rank} comes" if late.rank else "it begins to send"
            said = [
                f"{begins} {_ms(late.late_ns)} after the others of its role",
                "nothing that it sends or is sent is sent again",
            ]
            next_ns = max((other.late_ns for other in case.late if other.nic != late.nic), default=0)
            if next_ns > 0:
                said.append(f"without it the others would wait {_ms(next_ns)} for another rank")
            return Cause("compute", late.nic, late.nic, max(late.late_ns - next_ns, 0), 0.9, tuple(said))
    return None


def _pauses(case: Case) -> Cause | None:
    """A rank stands still now and then: it neither sends nor takes, with no loss on its way."""
    pauses = case.pauses
    if pauses is None or case.resent_share(case.of_nic(pauses.nic)) > LOSING_SHARE:
        return None
    told = f"in these the others waited most for {pauses.rank} to take what they sent"
    said = [
        f"{pauses.longer} of {pauses.iterations} {'calls' if pauses.rank else 'iterations'} took {_ms(pauses.longer_ns)} longer",
        told if pauses.rank else "in these it was silent before all that waited for it",
    ]
    costs_ns = round(pauses.longer_ns * pauses.longer / pauses.iterations)
    return Cause("host", pauses.nic, pauses.nic, costs_ns, 0.8, tuple(said), is_repeated=True)


def _not_ready(case: Case) -> Cause | None:
    """A NIC answers that no receive is posted for what it is sent; the one that does so most."""
    counts: Counter[str] = Counter()
    for src, dst in {flow[:2] for flow in case.job.flows}:
        if case.is_refused(src, dst):
            counts[dst] += case.not_ready[dst, src]
    if not counts:
        return None
    nic, count = max(counts.items(), key=lambda one: (one[1], one[0]))
    said = (
        f"it sent {count} RNR NAKs in the last seconds: its program had posted no receive for what came",
        f"an iteration takes {_ms(case.longer_ns)} longer than it did",
    )
    return Cause("host", nic, nic, round(case.longer_ns), 0.8, said)


def _queue(case: Case) -> Cause | None:
    """Packets wait at a link for longer than at others like it, and than at any that other jobs use as well.

    Where they wait much longer elsewhere, that is not what the job waits for.
    """
    waits = _waits(case)
    shared_ns = max((wait for i, wait in waits.items() if _is_shared(case, i)), default=0.0)
    least_ns = max(shared_ns, max(waits.values(), default=0.0) / 2)
    for i in sorted((i for i in waits if waits[i] >= least_ns), key=lambda i: -waits[i]):
        ratio = waits[i] / max(_like(case, waits, i), LEAST_QUEUE_NS / UNLIKE)
        if ratio > UNLIKE:
            said = (
                f"packets wait there for up to {_ms(waits[i])}, {ratio:.0f} times as long as at links like it"
            )
            return _out_of_use(case, [i]) or _at_link(case, i, said)
    return None


def _loss(case: Case) -> Cause | None:
    """Packets are lost on the way of some queue pairs, and a link is common to all of these and to no others."""
    losing = [flow for flow in case.job.flows if case.resent_share([flow]) > LOSING_SHARE]
    if not losing:
        return None
    shared = frozenset.intersection(*(case.links.of.get(flow, frozenset()) for flow in losing))
    well = [case.links.of.get(flow, frozenset()) for flow in case.job.flows if flow not in losing]
    suspects = [i for i in shared if not any(i in links for links in well)]
    if not suspects:
        return None
    i = min(suspects, key=case.links.name)
    link = case.links.names[i]
    said = [
        f"{len(losing)} queue pairs over it have packets sent again, {case.resent_share(losing):.1%}; no other has"
    ]
    is_sure = len(suspects) == 1 and is_between_switches(link) and _are_of_several(losing)
    return Cause(
        "link",
        case.links.name(i),
        _nic_at(case, i),
        round(case.longer_ns),
        1 / len(suspects),
        tuple(said),
        to_avoid=(link,) if is_sure else (),
    )


def _are_of_several(flows: Iterable[Flow]) -> bool:
    """Whether no host is at an end of all of them: what one host tells of itself is no evidence against a link."""
    return not set.intersection(*({host_of(flow.src), host_of(flow.dst)} for flow in flows))


def _missing(case: Case) -> Cause | None:
    """A link is out of use next to those that the job uses: what is left carries what went over it."""
    return _out_of_use(case, case.crossed)


def _out_of_use(case: Case, links: Collection[int]) -> Cause | None:
    """A link upwards from where some links go up or come down, that nothing, or nothing but what must, is sent over."""
    switches = {_lower_end(case, i) for i in links if is_between_switches(case.links.names[i])}
    for finding in case.links.findings:
        if finding.kind in LEFT and any(switches.intersection(link) for link in finding.subject.links):
            found = _found(case, finding, 0.0)
            said = f"it is out of use, and an iteration takes {_ms(case.longer_ns)} longer than before"
            return replace(found, evidence=(*found.evidence[:2], said))
    return None


def _lower_end(case: Case, i: int) -> str:
    """The end of a link that is nearer to NICs: from tier t up to the next its kind is 4 t + 1 (`manager.links.loads.tiers`)."""
    link = case.links.names[i]
    return link.a if case.links.tier[i] % 4 == 1 else link.b


def _shared(case: Case) -> Cause | None:
    """Packets wait at a link that other jobs use as well."""
    waits = {i: wait for i, wait in _waits(case).items() if wait > LEAST_QUEUE_NS and _is_shared(case, i)}
    if not waits:
        return None
    i = max(waits, key=lambda i: waits[i])
    return _at_link(case, i, f"packets wait there for up to {_ms(waits[i])}")


def _at_link(case: Case, i: int, said: str) -> Cause:
    """A queue is the cause: of those who share the link, or of the link itself where nobody does."""
    slower = f"an iteration takes {_ms(case.longer_ns)} longer than it did"
    rivals, strays = _rivals(case, i), _strays(case, i)
    nic, name = _nic_at(case, i), case.links.name(i)
    costs_ns = round(case.longer_ns)
    mine = len(case.over([i]))
    others = [*rivals, *([_said_of(strays)] if strays else [])]
    if not others and not nic and mine > 1:
        return Cause(
            "contention", name, "", costs_ns, 0.7, (said, f"{mine} queue pairs of the job share it", slower)
        )
    if not others:
        return Cause("nic" if nic else "link", nic or name, nic, costs_ns, 0.7, (said, slower))
    is_incast = is_nic(case.links.names[i].b) and len({flow.src for flow in case.over([i])}) >= MANY_SENDERS
    shared = f"shared with {', '.join(others)}"
    between = tuple(sorted({case.name, *rivals}))
    return Cause(
        "incast" if is_incast else "contention", name, nic, costs_ns, 0.7, (said, shared, slower), between
    )


def _unknown(case: Case) -> Cause:
    said = [f"an iteration takes {_ms(case.longer_ns)} longer than it did, and no rule says why"]
    return Cause("unknown", case.name, "", round(case.longer_ns), 0.0, tuple(said))


def _over_lately(case: Case, finding: Finding) -> list[Flow]:
    """Flows of the job that cross what a finding names, or did of late."""
    named, links = frozenset(finding.subject.links), case.links

    def crossed(flow: Flow) -> Iterable[DirectedLink]:
        return links.lately.get(flow) or (links.names[i] for i in links.crossed(flow))

    return [flow for flow in case.job.flows if not named.isdisjoint(crossed(flow))]


def _of_host(case: Case, finding: Finding) -> list[Flow]:
    """Flows of the job that a slow host's NICs send or receive."""
    subject = finding.subject
    names = {subject.name} | {host_of(node) for link in subject.links for node in link if is_nic(node)}
    return [
        flow
        for flow in case.job.flows
        if not names.isdisjoint({flow.src, flow.dst, host_of(flow.src), host_of(flow.dst)})
    ]


def _waits(case: Case) -> dict[int, float]:
    """The queues at links that the job uses, those that are known, in ns."""
    return {i: float(wait) for i in sorted(case.crossed) if np.isfinite(wait := case.links.queue_p99_ns[i])}


def _rivals(case: Case, i: int) -> list[str]:
    """Other jobs with queue pairs that sent over a link of late."""
    return [
        name
        for name, job in case.others
        if not job.lately.is_over
        and any(i in case.links.crossed(flow) and job.lately.sent.get(flow, 0) for flow in job.flows)
    ]


def _strays(case: Case, i: int) -> list[str]:
    """Hosts that send over a link by queue pairs of no known job, and not little."""
    packets = case.links.strays.get(i)
    if not packets:
        return []
    mine = sum(case.job.lately.sent.get(flow, 0) for flow in case.over([i]))
    return in_order(packets) if sum(packets.values()) > LITTLE_SHARE * mine else []


def _is_shared(case: Case, i: int) -> bool:
    return bool(_rivals(case, i) or _strays(case, i))


def _said_of(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - MOST_NAMED} more" if len(hosts) > MOST_NAMED else ""
    return f"queue pairs of {', '.join(hosts[:MOST_NAMED])}{more}, of no known job"


def _like(case: Case, waits: dict[int, float], i: int) -> float:
    """The median wait at other links of the kind of one that the job uses, or of any kind where there are none; 0 for none."""
    others = [other for other in waits if other != i]
    like = [other for other in others if case.links.tier[other] == case.links.tier[i]]
    return float(np.median([waits[other] for other in like or others])) if others else 0.0


def _nic_at(case: Case, i: int) -> str:
    """The NIC at an end of a link; empty between switches."""
    return next((node for node in case.links.names[i] if is_nic(node)), "")


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.1f} ms"


Rule = Callable[[Case], Cause | None]

RULES: tuple[Rule, ...] = _fault, _processor, _compute, _pauses
"""In the order in which they are asked."""

RULES_OF_SLOWER: tuple[Rule, ...] = _not_ready, _queue, _loss, _missing, _shared, _unknown
"""Asked after the others of a job that takes longer than usual."""
