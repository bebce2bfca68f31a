"""What a step did, in words: few events, each with its reason."""

from collections.abc import Collection, Iterator, Sequence

from manager.fabric.routes import DirectedLink
from manager.planner.flows import QpName
from manager.planner.step import Outcome

FLEET = "fleet"
_NAMED = 3


def tell(outcome: Outcome, dead: Collection[DirectedLink]) -> Iterator[tuple[str, str, str]]:
    """Host (or `fleet`), kind and text of each event."""
    if outcome.rerouted:
        why = f"{_some([f'{a} > {b}' for a, b in sorted(dead)])} is not to be used" if dead else ""
        yield _event("qp_rerouted", outcome.rerouted, why or "their way was not known")
    if outcome.moved:
        hot = outcome.relieved
        where = f"{hot.a} > {hot.b}" if hot is not None else "a link"
        share = f"{outcome.top_before:.0%} of what it carries, now {outcome.top_after:.0%}"
        jobs = f"{outcome.jobs_moved} job{'s' * (outcome.jobs_moved != 1)}"
        yield _event("qp_moved", outcome.moved, f"of {jobs}; {where} was wanted for {share}")
    if outcome.backed_up:
        yield _event("qp_backed_up", outcome.backed_up, "each has a way round ready")


def _event(kind: str, names: Sequence[QpName], why: str) -> tuple[str, str, str]:
    hosts = sorted({name.host for name in names})
    count = f"{len(names)} queue pair{'s' * (len(names) != 1)}"
    return hosts[0] if len(hosts) == 1 else FLEET, kind, f"{count} of {_some(hosts)}: {why}"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
