"""Jobs and links with what a test says of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from manager.causes.cause import Links
from manager.causes.rules import Case
from manager.fabric.routes import DirectedLink
from manager.faults.finding import Finding, Subject
from manager.jobs.flows import Flow
from manager.jobs.inference import Job
from manager.jobs.kinds import Communicator
from manager.jobs.symptoms import Symptoms
from manager.jobs.windows import SHORT

USUAL_NS = 500e6
NICS = tuple(f"h{i}/nic0" for i in range(1, 5))
LEAF = {"h1/nic0": "l1", "h2/nic0": "l1", "h3/nic0": "l2", "h4/nic0": "l2"}


def ring(nics: Sequence[str] = NICS) -> tuple[Flow, ...]:
    """Flows round some NICs."""
    return tuple(
        Flow(src, dst, 100 + i) for i, (src, dst) in enumerate(zip(nics, (*nics[1:], nics[0]), strict=True))
    )


def job(
    flows: Sequence[Flow] = ring(),
    *,
    took_ms: float = 500.0,
    resent: Mapping[Flow, int] | None = None,
    **lately: Any,
) -> Job:
    """A job whose queue pairs sent 10,000 packets each."""
    seen = Symptoms(
        lasted_ns=np.full(20, round(took_ms * 1e6), np.int64),
        sent=dict.fromkeys(flows, 10_000),
        resent=resent or {},
        **lately,
    )
    nics = tuple(sorted({flow.src for flow in flows}))
    return Job(
        named="",
        owners=frozenset(),
        flows=tuple(flows),
        sent_bytes={},
        communicators=(Communicator(nics, "ring"),),
        starts_ns=np.arange(21, dtype=np.int64) * round(took_ms * 1e6),
        changes=(),
        ranks=(),
        confidence=1.0,
        likeness=0.9,
        window=SHORT,
        lately=seen,
    )


def way(flow: Flow) -> list[DirectedLink]:
    """The links of a flow, over spine s1 where it changes leaves."""
    a, b = LEAF[flow.src], LEAF[flow.dst]
    between = [] if a == b else [DirectedLink(a, "s1"), DirectedLink("s1", b)]
    return [DirectedLink(flow.src, a), *between, DirectedLink(b, flow.dst)]


def links(
    flows: Sequence[Flow] = ring(),
    *,
    queue_us: Mapping[tuple[str, str], float] | None = None,
    findings: Sequence[Finding] = (),
) -> Links:
    """What the flows cross, 100 us of queue at each link but for those named."""
    names = sorted({link for flow in flows for link in way(flow)})
    number = {link: i for i, link in enumerate(names)}
    tier = [3 * _tier(link.a) + _tier(link.b) for link in names]
    queues = [1e3 * (queue_us or {}).get((link.a, link.b), 100.0) for link in names]
    return Links(
        names=names,
        tier=np.array(tier),
        queue_p99_ns=np.array(queues),
        of={flow: frozenset(number[link] for link in way(flow)) for flow in flows},
        lately={flow: frozenset(way(flow)) for flow in flows},
        findings=findings,
    )


def _tier(node: str) -> int:
    return 0 if "/" in node else 1 if node.startswith("l") else 2


def finding(kind: Any, a: str, b: str, subject: Any = "link") -> Finding:
    """Something wrong with a link."""
    both = (DirectedLink(a, b), DirectedLink(b, a))
    return Finding(
        number=1,
        kind=kind,
        subject=Subject(subject, f"{a} - {b}", both),
        confidence=0.9,
        evidence=["seen"],
        start_s=0.0,
    )


def case(
    one: Job,
    known: Links,
    usual_ns: float | None = USUAL_NS,
    *,
    waits: Mapping[str, float] | None = None,
    not_ready: Mapping[tuple[str, str], int] | None = None,
    **others: Job,
) -> Case:
    """The job `me` beside others."""
    return Case("me", one, usual_ns, known, tuple(others.items()), waits or {}, not_ready or {})
