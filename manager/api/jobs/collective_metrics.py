"""Metrics of what programs with the plug-in for NCCL tell, by job and function, of at most so many of each. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import nan
from statistics import median

from prometheus_client.core import Metric

from cwdp.shared.bus.collectives import FUNCTIONS
from manager.api.metric_families import NS, Labels, gauge, gauges, labelled_gauges
from manager.collectives.store import Collective

MOST_JOBS, MOST_FUNCTIONS = 100, 4
"""That have series: jobs that were heard of last, and the functions that each calls most."""

LATEST = 64
"""Calls of a job, of which the medians are."""

LABELS = ("job_name", "function")


def collective_metrics(jobs: int, latest: Sequence[tuple[str, Sequence[Collective]]]) -> Iterator[Metric]:
    """How long calls take, how fast they are, and how late their last rank is.

    Args:
        jobs: how many are known.
        latest: some, with their last calls; those of which the end is not known do not count.
    """
    lasted: dict[Labels, float] = {}
    speed: dict[Labels, float] = {}
    late: dict[Labels, float] = {}
    left_out = 0
    for name, calls in latest:
        whole = [call for call in calls if not call.is_enqueued]
        chosen = Counter(call.function for call in whole).most_common()
        left_out += len(chosen[MOST_FUNCTIONS:])
        by_function = defaultdict(list)
        for call in whole:
            by_function[call.function].append(call)
        for function, _ in chosen[:MOST_FUNCTIONS]:
            key, its = (name, FUNCTIONS[function]), by_function[function]
            lasted[key] = median(call.lasted_ns for call in its) * NS
            sized = [8 * call.bytes / max(call.lasted_ns * NS, NS) for call in its if call.bytes]
            speed[key] = median(sized) if sized else nan
            late[key] = median(call.late_ns for call in its) * NS
    yield gauge("cwdp_collective_jobs", "Jobs whose programs tell of their collectives.", jobs)
    text = "A collective of a job, the median of its last 64 calls."
    yield labelled_gauges("cwdp_collective_seconds", text, LABELS, lasted)
    text = "Bits of a call over the time that it took, the median of these whose size is known."
    yield labelled_gauges("cwdp_collective_bps", text, LABELS, speed)
    text = "How long after the first rank the last one began, the median of these."
    yield labelled_gauges("cwdp_collective_late_seconds", text, LABELS, late)
    unseen = {"jobs": jobs - len(latest), "functions": left_out}
    yield gauges("cwdp_collective_series_left_out", "Jobs and functions without series.", "what", unseen)
