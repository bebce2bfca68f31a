"""What runs found, as figures with their verdicts; of several pods a figure is that of the worst."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np

from tools.bench.bus import security
from tools.bench.figures import Figure, figure, not_measured
from tools.bench.swarm.measuring import LATEST_S, measure
from tools.bench.swarm.runs import Fault, PodRun, Run
from tools.swarm.fabric import Size

SIZES = (256, 2_048)
MOST_CORES, MOST_MEMORY_BYTES, MOST_NAMED_S, MOST_GROWTH = 1.2, 1.5 * 2**30, 2.0, 1.15
MOST_SECURITY, MOST_FIRST_PLAN_S, MOST_ROOT_CORES = 0.1, 3.0, 0.3
ROOT = "root"
"""The duty that the root does for the whole fleet."""


def figures(nics: int | None = None, pods: int = 1) -> Iterator[Figure]:
    """Three minutes a size, of several pods so much longer as they are slowed.

    Args:
        nics: of the whole fleet; both sizes that are compared unless given.
        pods: into which it is divided.
    """
    runs = [asyncio.run(measure(Size(nics=size, pods=pods))) for size in ((nics,) if nics else SIZES)]
    for run in runs:
        yield from of_run(run)
    if len(runs) > 1:
        yield growth(runs)


def growth(runs: list[Run]) -> Figure:
    """Processor time a NIC with the most NICs, of that with the fewest."""
    name, unit = "swarm.growth_per_nic", f"of that with {runs[0].nics}"
    if any(pod.lost_on_the_way for run in runs for pod in run.pods):
        return not_measured(name, unit, "reports were lost, which the manager did not have to read")
    each = [run.pods[0].cores / run.nics for run in runs]
    return figure(name, each[-1] / each[0], unit, None, MOST_GROWTH)


def of_run(run: Run) -> Iterator[Figure]:
    """All of a run's."""
    name = f"swarm.{run.nics}" if len(run.pods) == 1 else f"swarm.{run.nics}.{len(run.pods)}"
    yield from _of_processes(name, run)
    yield from _of_messages(name, run)
    led = [pod.times_led for pod in run.pods if pod.times_led is not None]
    if len(led) < len(run.pods):
        yield not_measured(f"{name}.times_led", "times", "a manager's history does not tell all events")
    else:
        yield figure(f"{name}.times_led", max(led), "times", _by_pod(run, "times_led"), 1, digits=0)
    misnamed = [name for pod in run.pods for name in pod.misnamed]
    yield _named(f"{name}.named_p99", run.faults, to_core=False, misnamed=misnamed)
    if len(run.pods) == 1:
        yield _security(name, run)
        if run.first_plan_s is not None:
            yield figure(f"{name}.first_plan", run.first_plan_s, "s", None, MOST_FIRST_PLAN_S, digits=2)
    else:
        yield _named(f"{name}.core_named_p99", run.faults, to_core=True, misnamed=[])
        yield from _of_root(name, run)


def _of_processes(name: str, run: Run) -> Iterator[Figure]:
    worst = max(run.pods, key=lambda pod: pod.cores)
    cores = {"swarm": run.swarm_cores, "manager": worst.cores, "bus": run.bus_cores}
    told: dict[str, Any] = {
        "cores": {process: round(share, 3) for process, share in cores.items()},
        "duties": {duty: round(share, 3) for duty, share in worst.duties.items()},
        "unattributed": round(worst.unattributed, 3),
        "moves": sum(pod.moves for pod in run.pods),
    }
    if len(run.pods) > 1:
        told |= {"slowed": run.slowed, "pods": _by_pod(run, "cores", 3)}
    yield figure(f"{name}.cores", worst.cores, "cores", told, MOST_CORES, digits=3)
    largest = max(pod.memory_bytes for pod in run.pods)
    memory = {"manager": largest >> 20, "bus": run.bus_bytes >> 20}
    yield figure(
        f"{name}.memory", largest / 2**20, "MiB", {"MiB": memory}, MOST_MEMORY_BYTES / 2**20, digits=0
    )


def _of_messages(name: str, run: Run) -> Iterator[Figure]:
    backlog = {
        "loop_lag_s": round(max(pod.loop_lag_s for pod in run.pods), 2),
        "backlog_s": round(max(pod.backlog_s for pod in run.pods), 2),
        "swarm_late_s": round(run.swarm_late_s, 2),
        "unsent": run.unsent,
    }
    if len(run.pods) > 1:
        backlog |= {"slowed": run.slowed}
    lost = sum(pod.lost_on_the_way for pod in run.pods)
    yield figure(f"{name}.reports_lost", lost, "reports", backlog, 0, digits=0)
    nics = run.nics / len(run.pods)
    up, down = (max(getattr(pod, f"bytes_{way}_per_s") for pod in run.pods) / nics for way in ("up", "down"))
    yield figure(f"{name}.bytes_up_a_nic", up, "B/s", {"down": round(down)}, 10_000, digits=0)


def _named(name: str, faults: list[Fault], *, to_core: bool, misnamed: list[str]) -> Figure:
    """How long the manager of a link's pod took to name it; of one between pods whichever manager was the first."""
    chosen = [fault for fault in faults if fault.to_core == to_core]
    if not chosen:
        return not_measured(name, "s", "no such link was broken")
    named_s = np.array([_first_s(fault) for fault in chosen])
    told: dict[str, Any] = {
        "faults": len(chosen),
        "named_s": named_s.round(2).tolist(),
        "median_s": round(float(np.median(named_s)), 2),
        "not_named": int(np.count_nonzero(named_s == LATEST_S)),
        "named_share": round(float(np.mean(named_s < LATEST_S)), 3),
    }
    if to_core:
        told["named_by_pods"] = [len(fault.named_s) for fault in chosen]
    else:
        told["misnamed"] = misnamed
    return figure(name, np.percentile(named_s, 99), "s", told, MOST_NAMED_S, digits=2)


def _first_s(fault: Fault) -> float:
    if fault.to_core:
        return min(fault.named_s.values(), default=LATEST_S)
    return fault.named_s.get(fault.pod, LATEST_S)


def _of_root(name: str, run: Run) -> Iterator[Figure]:
    """What one leader does for all pods, and what leaders tell each other."""
    root = next((pod for pod in run.pods if pod.pod == run.root), None)
    if root is None:
        yield not_measured(f"{name}.root", "cores", "no leader was known to be the root")
    else:
        others = [pod.cores for pod in run.pods if pod is not root]
        told = {
            "pod": root.pod,
            "more_than_others_cores": round(root.cores - float(np.median(others)), 3),
            "slowed": run.slowed,
        }
        cores = root.duties.get(ROOT, 0.0)
        yield figure(f"{name}.root", cores, "cores", told, MOST_ROOT_CORES, digits=3)
    told_by = {subject: round(size) for subject, size in sorted(run.between_pods.items())}
    reference = {
        "by_subject": told_by,
        "paths_probed": run.probes_between_pods,
        "counting_lost": run.counting_lost,
    }
    total = sum(run.between_pods.values())
    yield figure(f"{name}.bytes_between_pods", total, "B/s", reference, None, digits=0)


def _by_pod(run: Run, what: str, digits: int = 0) -> dict[str, float] | None:
    """A figure of each pod; None where there is one only."""
    if len(run.pods) == 1:
        return None
    return {pod.pod: round(getattr(pod, what), digits) for pod in run.pods}


def _security(name: str, run: Run) -> Figure:
    pod: PodRun = run.pods[0]
    up, down = pod.messages_up_per_s, pod.messages_down_per_s
    rates = security.Rates(
        up, round(pod.bytes_up_per_s / up), down, round(pod.bytes_down_per_s / max(down, 1.0))
    )
    cores = asyncio.run(security.cores(rates))
    told = {
        "messages_per_s": [round(up), round(down)],
        "cores": {what: round(share, 4) for what, share in cores.items()},
    }
    return figure(
        f"{name}.security",
        (cores["tls"] + cores["signatures"]) / pod.cores,
        "of the manager's",
        told,
        MOST_SECURITY,
    )
