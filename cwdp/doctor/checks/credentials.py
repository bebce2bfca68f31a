"""By what this host is known to others: whatever it signs and authenticates itself with is checked here."""

from collections.abc import Iterator
from datetime import UTC, datetime

from cwdp.doctor.facts import Facts
from cwdp.doctor.result import Result


def credential(facts: Facts) -> Iterator[Result]:
    """Whether the bus lets this host in."""
    if facts.credential_problem is not None:
        what, step = facts.credential_problem.message, facts.credential_problem.hint
        yield Result(name="credential", verdict="fail", what=what, next_step=step)
    elif facts.credential is not None:
        known = facts.credential
        ends = (
            ""
            if known.expires_s is None
            else f" until {datetime.fromtimestamp(known.expires_s, UTC):%Y-%m-%d}"
        )
        yield Result(name="credential", verdict="ok", what=f"{known.name} of pod {known.pod}{ends}")


def cluster_keys(facts: Facts) -> Iterator[Result]:
    """Whether probes can be signed."""
    if facts.config is None:
        return
    if facts.keys_problem is None:
        yield Result(name="cluster keys", verdict="ok", what="told by the leader")
    else:
        what, step = facts.keys_problem.message, facts.keys_problem.hint
        yield Result(name="cluster keys", verdict="fail", what=what, next_step=step)
