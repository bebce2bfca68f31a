"""Links that break, lose, are slow or come and go; jobs that collide."""

from collections.abc import Iterator
from contextlib import contextmanager

from tools.lab import faults, parts, process
from tools.roce import job_cli as jobs
from tools.roce.job_keeper import part
from tools.soak.stage import Stage
from tools.soak.troubles import Trouble

SLOW_UPLINK, SLOW_HOST = 0.2, 0.05
"""Of the link's rate."""

FLAP_S = 1.5
COLLIDING, COLLIDING_LOAD = ("C", "D"), 0.25


@contextmanager
def _cut(stage: Stage, trouble: Trouble) -> Iterator[None]:
    faults.cut(stage.lab.name, trouble.target)
    try:
        yield
    finally:
        _mend(stage, trouble)


@contextmanager
def _dropping(stage: Stage, trouble: Trouble) -> Iterator[None]:
    faults.drop(stage.lab.name, trouble.target, trouble.share, trouble.direction)
    try:
        yield
    finally:
        faults.drop(stage.lab.name, trouble.target, 0.0)


@contextmanager
def _flapping(stage: Stage, trouble: Trouble) -> Iterator[None]:
    """Silent and not, by turns, for as long as it lasts."""
    try:
        while stage.now_s < trouble.end_s - FLAP_S and not stage.stop.is_set():
            for share in (1.0, 0.0):
                faults.drop(stage.lab.name, trouble.target, share)
                stage.stop.wait(FLAP_S)
        yield
    finally:
        faults.drop(stage.lab.name, trouble.target, 0.0)


@contextmanager
def _slow_uplink(stage: Stage, trouble: Trouble) -> Iterator[None]:
    with _slow(stage, trouble, round(SLOW_UPLINK * stage.lab.spec.spine_rate_bps)):
        yield


@contextmanager
def _slow_host(stage: Stage, trouble: Trouble) -> Iterator[None]:
    with _slow(stage, trouble, round(SLOW_HOST * stage.lab.spec.rate_bps)):
        yield


@contextmanager
def _slow(stage: Stage, trouble: Trouble, rate_bps: int) -> Iterator[None]:
    faults.slow(stage.lab.name, trouble.target, rate_bps, trouble.direction)
    try:
        yield
    finally:
        _mend(stage, trouble)


@contextmanager
def _colliding(stage: Stage, trouble: Trouble) -> Iterator[None]:
    """Two jobs of two hosts each, all led over one spine."""
    lab = stage.lab
    below = [[host.name for host in lab.hosts if host.nics[0].leaf == leaf] for leaf in lab.topology.leaves]
    members = list(zip(below[0], below[1], strict=True))
    try:
        for job, pair in zip(COLLIDING, members, strict=False):
            jobs.start(lab.name, job, pair, COLLIDING_LOAD, trouble.target)
        yield
    finally:
        with process.undisturbed():
            for job in COLLIDING:
                parts.stop(lab.name, part(job))


def _mend(stage: Stage, trouble: Trouble) -> None:
    """Heal, and have the classifiers back that drop nothing: to attach one loses packets."""
    faults.heal(stage.lab.name, trouble.target)
    faults.drop(stage.lab.name, trouble.target, 0.0)


ACTS = {
    "cut": _cut,
    "silent": _dropping,
    "silent_one_way": _dropping,
    "loss": _dropping,
    "flap": _flapping,
    "slow_link": _slow_uplink,
    "slow_sender": _slow_host,
    "slow_receiver": _slow_host,
    "collision": _colliding,
}
