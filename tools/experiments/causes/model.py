"""What is done to a job, and whether what the manager says of it is right. No lab.

A job of every second host runs alone. What its ranks do, a straggler or a rank that stands still, they do from the start;
what is done to the fabric, and another job beside, begins once the manager knows how long an iteration takes, one after the other.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from manager.causes.rules import SLOWER_SHARE
from manager.jobs.symptoms import RECENT
from tools.experiments.collectives.jobs import make_jobs
from tools.lab.topology import Topology
from tools.roce.collective.plan import Plan, plan_collective, rank_ends
from tools.roce.collective.rank import Stall
from tools.roce.flows import largest_mtu
from tools.roce.jobs import interleaved

Kind = Literal["healthy", "compute", "nic", "loss", "cut", "rival", "stall", "processor"]
KINDS: tuple[Kind, ...] = "healthy", "compute", "nic", "loss", "cut", "rival", "stall", "processor"

FROM_THE_START: tuple[Kind, ...] = "compute", "stall"
"""What ranks do; for each of these a job begins."""

GROUPS = 2
"""Of hosts, which jobs take in turns."""

LATE = 0.2
LOSS = 0.01
LEFT = 0.25
"""Of what a host's processes use of processors."""

STALL = Stall(50_000_000, 2_000_000_000)
PATIENT_NS = 1_000_000_000

ACCEPTED: Mapping[Kind, tuple[str, ...]] = {
    "healthy": (),
    "compute": ("compute",),
    "nic": ("nic", "link"),
    "loss": ("link",),
    "cut": ("link",),
    "rival": ("contention", "incast"),
    "stall": ("host",),
    "processor": ("host",),
}
"""What `cwdp why` may call each."""

OUTCOMES = "right", "late", "missed", "wrong", "spared"
NOT_INFERRED = "no job was inferred"

Json = dict[str, Any]


@dataclass(frozen=True)
class Trouble:
    """What is done to the job.

    Attributes:
        kind: one of `KINDS`.
        nic: of a rank, as HOST/IFNAME; empty where it is about none.
        link: of the lab; empty where it is about none.
        seed: draws the rest.
        group: the group of hosts that the job is on.
    """

    kind: Kind
    nic: str = ""
    link: str = ""
    seed: int = 1
    group: int = 0


@dataclass(frozen=True)
class Setting:
    """The jobs.

    Attributes:
        collective: one of `COLLECTIVES`.
        buffer_bytes: of each rank.
        compute_s: what a rank computes in an iteration.
        jitter: by how much of it longer or shorter, from 0 to 1.
    """

    collective: str
    buffer_bytes: int
    compute_s: float
    jitter: float

    def plans(self, topology: Topology, trouble: Trouble) -> tuple[Plan, Plan]:
        """The job that is looked at, and the one beside; no two cases have the same queue pairs, as jobs have not."""
        jobs = make_jobs(
            topology,
            self.collective,
            jobs=GROUPS,
            buffer_bytes=self.buffer_bytes,
            compute_s=self.compute_s,
            jitter=self.jitter,
        )
        mine, other = jobs.communicators[trouble.group], jobs.communicators[1 - trouble.group]
        ends, mtu = rank_ends(topology), largest_mtu(topology.spec.mtu)
        first, second = random.Random(f"{trouble.kind} {trouble.seed} queue pairs").sample(range(2**31), 2)
        settings: Json = {"jitter": self.jitter, "mtu": mtu, "timeout_ns": PATIENT_NS}
        late = {trouble.nic: LATE} if trouble.kind == "compute" else {}
        stalls = {trouble.nic: STALL} if trouble.kind == "stall" else {}
        return (
            plan_collective(ends, [mine], seed=first, stragglers=late, stalls=stalls, **settings),
            plan_collective(ends, [other], seed=second, **settings),
        )

    def job_name(self, topology: Topology, trouble: Trouble) -> str:
        """What the manager calls the job that is looked at: its first host."""
        return interleaved(topology.hosts, GROUPS)[trouble.group].members[0]


def draw(kind: Kind, topology: Topology, seed: int, group: int = 0) -> Trouble:
    """One of the job's NICs, and its link or one between a leaf and a spine."""
    rng = random.Random(f"{kind} {seed}")
    host = rng.choice(interleaved(topology.hosts, GROUPS)[group].members)
    nic = topology.nics[host][0]
    if kind in ("loss", "cut"):
        between = [name for name, link in topology.links.items() if link.a.node in topology.switches]
        return Trouble(kind, link=rng.choice(sorted(between)), seed=seed, group=group)
    link = topology.links_of(host)[0]
    return Trouble(
        kind, nic=f"{host}/{nic.name}", link=link.name if kind == "nic" else "", seed=seed, group=group
    )


@dataclass(frozen=True)
class Meanwhile:
    """How a job fared while something was done to it.

    Attributes:
        longer: by how much of itself the median iteration took longer than before; None where that is not known.
        slow_after_s: when the median of its last `RECENT` iterations was first longer by so much as a job is called slow for;
            None where it never was.
    """

    longer: float | None = None
    slow_after_s: float | None = None


UNKNOWN = Meanwhile()


@dataclass(frozen=True)
class Verdict:
    """What was said of a job.

    Attributes:
        trouble: what was done to it.
        outcome: `right`, `late` (right, but not within the time), `missed`, `wrong` (another cause was told, and not the
            right one before), `spared` (nothing was told of a rival that cost the job nothing).
        after_s: from where it could be seen to where it was told; None where it was not.
        said: the causes that were told, in order.
        others: how many of these were not right; `unknown` is among them of a job that is well.
        meanwhile: how long iterations took, as the ranks say.
    """

    trouble: Trouble
    outcome: str
    after_s: float | None
    said: Sequence[str] = field(default_factory=list)
    others: int = 0
    meanwhile: Meanwhile = UNKNOWN


def judge(
    trouble: Trouble,
    topology: Topology,
    causes: Iterable[Json],
    since_s: float,
    within_s: float,
    *,
    meanwhile: Meanwhile = UNKNOWN,
) -> Verdict:
    """Hold what was told against what was done.

    Args:
        trouble: what was done.
        topology: of the lab.
        causes: as `/v1/causes` has them.
        since_s: when it could be seen first, since 1970.
        within_s: in time is what is told so soon after; of a rival, after iterations became longer.
        meanwhile: as in `Verdict`.
    """
    told = sorted((row for row in causes if row["told_s"] >= since_s), key=lambda row: row["number"])
    right = [row for row in told if _is_right(trouble, topology, row)]
    is_well = trouble.kind == "healthy"
    others = [row for row in told if row not in right and (row["kind"] != "unknown" or is_well)]
    after_s = right[0]["told_s"] - since_s if right else None
    outcome = "right" if is_well else "missed"
    if after_s is not None:
        begun_s = (meanwhile.slow_after_s or 0.0) if trouble.kind == "rival" else 0.0
        outcome = "right" if after_s - begun_s <= within_s else "late"
    if others and (after_s is None or others[0]["number"] < right[0]["number"]):
        outcome = "wrong"
    longer = meanwhile.longer
    if outcome == "missed" and trouble.kind == "rival" and longer is not None and longer <= SLOWER_SHARE:
        outcome = "spared"
    said = [f"{row['kind']} {row['subject']}" for row in told]
    return Verdict(trouble, outcome, after_s, said, len(others), meanwhile)


def not_inferred(trouble: Trouble) -> Verdict:
    """Where the manager knew nothing of the job."""
    return Verdict(trouble, "missed", None, [NOT_INFERRED])


def fared(iterations: Iterable[Json], since_ns: int, before_s: float) -> Meanwhile:
    """How long iterations have taken since a moment, beside the time before.

    Args:
        iterations: of a job, with `start_ns` and `end_ns`, in order.
        since_ns: the moment.
        before_s: how much of the time before counts; iterations wholly within do.
    """
    from_ns = since_ns - before_s * 1e9
    rows = [(row["start_ns"], row["end_ns"]) for row in iterations if row["start_ns"] >= from_ns]
    took_ns = [end_ns - start_ns for start_ns, end_ns in rows]
    before_ns = [took for took, (_, end_ns) in zip(took_ns, rows, strict=True) if end_ns <= since_ns]
    first = next((i for i, (start_ns, _) in enumerate(rows) if start_ns >= since_ns), len(rows))
    if not before_ns or first == len(rows):
        return Meanwhile()
    usual_ns = median(before_ns)
    recent_ns = {i: median(took_ns[max(i + 1 - RECENT, 0) : i + 1]) for i in range(first, len(rows))}
    slow = next((i for i, median_ns in recent_ns.items() if median_ns > (1 + SLOWER_SHARE) * usual_ns), None)
    return Meanwhile(
        longer=median(took_ns[first:]) / usual_ns - 1,
        slow_after_s=None if slow is None else (rows[slow][1] - since_ns) / 1e9,
    )


def has_right(trouble: Trouble, topology: Topology, causes: Iterable[Json]) -> bool:
    """Whether what was done is among what was told."""
    return any(_is_right(trouble, topology, row) for row in causes)


def _is_right(trouble: Trouble, topology: Topology, row: Json) -> bool:
    if row["kind"] not in ACCEPTED[trouble.kind]:
        return False
    if trouble.nic and trouble.kind != "rival":
        return bool(row["rank"] == trouble.nic)
    if trouble.link:
        link = topology.links[trouble.link]
        names = [str(topology.router_addresses(end.node)[0]) for end in (link.a, link.b)]
        return all(name in row["subject"].split() for name in names)
    return True


def summarise(kind: Kind, verdicts: Sequence[Verdict]) -> Json:
    """All cases of a kind."""
    mine = [each for each in verdicts if each.trouble.kind == kind]
    outcomes = [each.outcome for each in mine]
    times = [each.after_s for each in mine if each.after_s is not None]
    return {
        "kind": kind,
        "cases": len(mine),
        **{outcome: outcomes.count(outcome) for outcome in OUTCOMES},
        "to_tell": len(mine) - outcomes.count("spared"),
        "others": sum(each.others for each in mine),
        "after_p50_s": round(median(times), 1) if times else None,
        "after_max_s": round(max(times), 1) if times else None,
    }
