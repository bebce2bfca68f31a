"""What the HTTP API answers of why jobs are slow."""

from collections.abc import Sequence

from manager.causes.watch import Acted, CauseWatch, Diagnosis
from manager.jobs.inference import Job
from manager.jobs.names import named
from manager.view.json_values import Json, rounded

PAST_SHOWN = 50


def causes(watch: CauseWatch, found: Sequence[Job], name: str = "") -> Json | None:
    """Causes that hold, those that held behind them, the newest first; of one job with `name`; None where nothing is of it."""
    jobs = {each: job for each, job in named(found).items() if name in ("", each)}
    rows = [*watch.current, *reversed(watch.past)]
    rows = [each for each in rows if not name or name in each.jobs][: len(watch.current) + PAST_SHOWN]
    if name and not jobs and not rows:
        return None
    return {
        "jobs": [_job(watch, each, job) for each, job in jobs.items()],
        "causes": [_row(each) for each in rows],
    }


def _job(watch: CauseWatch, name: str, job: Job) -> Json:
    median_ns, usual_ns = job.lately.median_ns, watch.usual_ns(job)
    return {
        "name": name,
        "iteration_ns": None if median_ns is None else rounded(median_ns),
        "usual_ns": None if usual_ns is None else rounded(usual_ns),
    }


def _acted(job: str, acted: Acted) -> Json:
    before_ns, after_ns = (None if ns is None else rounded(ns) for ns in (acted.before_ns, acted.after_ns))
    return {"job": job, "moved": acted.moved, "before_ns": before_ns, "after_ns": after_ns}


def _row(found: Diagnosis) -> Json:
    cause = found.cause
    return {
        "number": found.number,
        "kind": cause.kind,
        "subject": cause.subject,
        "rank": cause.rank or None,
        "jobs": sorted(found.jobs),
        "costs_ns": cause.costs_ns,
        "confidence": cause.confidence,
        "evidence": list(cause.evidence),
        "avoided": [f"{link.a} > {link.b}" for link in cause.to_avoid],
        "acted": [_acted(job, acted) for job, acted in sorted(found.acted.items())],
        "start_s": found.start_s,
        "told_s": found.told_s,
        "end_s": found.end_s,
    }
