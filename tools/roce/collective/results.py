"""What ranks say of their iterations, put together; all times are CLOCK_MONOTONIC in ns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tools.roce.collective.plan import Communicator, Plan
from tools.roce.collective.rank import Rank

Message = Mapping[str, Any]
_QUANTILES = (50, 99)
_BEGUN = 1  # of a step's two times


def collective_result(plan: Plan, messages: Iterable[Message]) -> dict[str, Any]:
    """Times of the iterations that all ranks of a job have completed.

    A job is all ranks that communicators join: ranks of different jobs do not wait for each other.

    Args:
        plan: of the run.
        messages: of `Generator.iterations`, in any order.
    """
    found = list(messages)
    return {"jobs": [_job(number, plan, names, found) for number, names in enumerate(_jobs(plan), 1)]}


def spread(durations_ns: Sequence[int]) -> dict[str, Any]:
    """Count, median, 99th percentile and maximum of durations in ns."""
    if not durations_ns:
        return {"count": 0, "p50_ns": None, "p99_ns": None, "max_ns": None}
    p50, p99 = np.percentile(durations_ns, _QUANTILES, method="inverted_cdf")
    return {
        "count": len(durations_ns),
        "p50_ns": int(p50),
        "p99_ns": int(p99),
        "max_ns": int(max(durations_ns)),
    }


def _jobs(plan: Plan) -> list[set[str]]:
    """The names of the ranks of each job, in the order of their first communicators."""
    jobs: list[set[str]] = []
    for communicator in plan.communicators:
        joined = [names for names in jobs if names & set(communicator.ranks)]
        names = set(communicator.ranks).union(*joined)
        place = jobs.index(joined[0]) if joined else len(jobs)
        jobs[place:] = [names, *(other for other in jobs[place:] if other not in joined)]
    return jobs


def _job(number: int, plan: Plan, names: set[str], messages: Sequence[Message]) -> dict[str, Any]:
    ranks = [rank for rank in plan.ranks if rank.name in names]
    iterations = _complete(ranks, messages)
    rows = [_iteration(iteration, by_rank) for iteration, by_rank in enumerate(iterations)]
    return {
        "job": number,
        "iterations": rows,
        "duration": spread([row["duration_ns"] for row in rows]),
        "communicators": [
            _communicator(ranks, communicator, iterations)
            for communicator in plan.communicators
            if names.issuperset(communicator.ranks)
        ],
        "ranks": [_rank(rank, iterations) for rank in ranks],
    }


def _complete(ranks: Sequence[Rank], messages: Sequence[Message]) -> list[dict[int, Message]]:
    """The messages of each iteration by rank, as far as all of these ranks have come."""
    ids = {rank.id for rank in ranks}
    found: dict[int, dict[int, Message]] = {}
    for message in messages:
        if message["rank"] in ids:
            found.setdefault(message["iteration"], {})[message["rank"]] = message
    return [by_rank for _, by_rank in sorted(found.items()) if len(by_rank) == len(ids)]


def _iteration(number: int, by_rank: Mapping[int, Message]) -> dict[str, Any]:
    start_ns = min(message["start_ns"] for message in by_rank.values())
    end_ns = max(message["end_ns"] for message in by_rank.values())
    return {"iteration": number, "start_ns": start_ns, "end_ns": end_ns, "duration_ns": end_ns - start_ns}


def _rank(rank: Rank, iterations: Sequence[Mapping[int, Message]]) -> dict[str, Any]:
    messages = [by_rank[rank.id] for by_rank in iterations]
    return {
        "rank": rank.name,
        "duration": spread([message["end_ns"] - message["start_ns"] for message in messages]),
    }


def _communicator(
    ranks: Sequence[Rank], communicator: Communicator, iterations: Sequence[Mapping[int, Message]]
) -> dict[str, Any]:
    """From the first rank's first send to the moment when the last rank has all that it waits for."""
    ranks = [rank for rank in ranks if rank.name in communicator.ranks]
    first_ns = {rank.id: _step_times(rank, _first_send(rank, communicator), iterations) for rank in ranks}
    last_ns = {rank.id: _step_times(rank, _last_step(rank, communicator), iterations) for rank in ranks}
    starts_ns = [min(times) for times in zip(*first_ns.values(), strict=True)]
    ends_ns = [max(times) for times in zip(*last_ns.values(), strict=True)]
    durations_ns = [end_ns - start_ns for start_ns, end_ns in zip(starts_ns, ends_ns, strict=True)]
    return {
        "name": communicator.name,
        "collective": communicator.collective,
        "message_bytes": communicator.message_bytes,
        "iterations": [
            {"iteration": number, "start_ns": start_ns, "end_ns": end_ns, "duration_ns": end_ns - start_ns}
            for number, (start_ns, end_ns) in enumerate(zip(starts_ns, ends_ns, strict=True))
        ],
        "duration": spread(durations_ns),
        "ranks": [
            {
                "rank": rank.name,
                "lateness": spread(
                    [own_ns - start_ns for own_ns, start_ns in zip(first_ns[rank.id], starts_ns, strict=True)]
                ),
            }
            for rank in ranks
        ],
    }


def _first_send(rank: Rank, communicator: Communicator) -> int:
    return next(
        number
        for number, step in enumerate(rank.steps)
        if step.communicator == communicator.name and step.outputs
    )


def _last_step(rank: Rank, communicator: Communicator) -> int:
    return max(number for number, step in enumerate(rank.steps) if step.communicator == communicator.name)


def _step_times(rank: Rank, step: int, iterations: Sequence[Mapping[int, Message]]) -> list[int]:
    return [by_rank[rank.id]["steps"][step][_BEGUN] for by_rank in iterations]
