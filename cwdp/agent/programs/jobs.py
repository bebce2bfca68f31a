"""Which job a program is of: by its cgroup, which the kernel tells, else by what it says itself. No I/O."""

import re
from collections.abc import Iterable, Mapping

MOST = 64

_SLURM = re.compile(r"/job_(\d{1,16})(?:/|$)")
_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?:/|$)")
_STARTERS = {
    "SLURM_JOB_ID": "slurm",
    "PBS_JOBID": "pbs",
    "LSB_JOBID": "lsf",
    "FLUX_JOB_ID": "flux",
    "TORCHELASTIC_RUN_ID": "torchrun",
    "RAY_JOB_ID": "ray",
    "PMIX_NAMESPACE": "pmix",
}
"""By their variables, which the verbs shim looks for."""

_NO_ID = ("", "none")
"""torchrun calls runs "none" that have no ID."""


def told_job(environ: Mapping[str, str]) -> str:
    """The variable of an environment that tells a job, NAME=VALUE of characters that can be shown; "" where there is none."""
    told = next((f"{name}={environ[name]}" for name in _STARTERS if environ.get(name, "") not in _NO_ID), "")
    return "".join(character if " " <= character <= "~" else "?" for character in told)


def job(cgroups: Iterable[str], told: str) -> str:
    """The job, as STARTER:ID; "" where there is none.

    Slurm's and Kubernetes' cgroups name it, whatever the program says. A pod comes last, as many jobs may run in one.

    Args:
        cgroups: paths of the process in all hierarchies.
        told: a variable of its environment, NAME=VALUE.
    """
    paths = list(cgroups)
    for path in paths:
        if "slurm" in path and (found := _SLURM.search(path)):
            return f"slurm:{found[1]}"
    name, _, value = told.partition("=")
    if name in _STARTERS and value not in _NO_ID:
        return f"{_STARTERS[name]}:{value}"[:MOST]
    for path in paths:
        if found := _POD.search(path):
            return f"pod:{found[1].replace('_', '-')}"
    return ""
