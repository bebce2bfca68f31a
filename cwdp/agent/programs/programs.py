"""What is known of a process of this host."""

from pathlib import Path

from cwdp.agent.programs.jobs import job
from cwdp.shared.verbs import Program

MOST_CGROUP = 512


def program(pid: int, told_job: str = "", proc: Path = Path("/proc")) -> Program:
    """What is known of a process; it may be gone.

    Args:
        pid: the process.
        told_job: a variable of its environment that tells its job, NAME=VALUE, where it says so itself.
        proc: where the kernel tells of processes.
    """
    name, cgroups = (_text(proc / str(pid) / what) for what in ("comm", "cgroup"))
    lines = cgroups.splitlines()
    own = [line.removeprefix("0::") for line in lines if line.startswith("0::")]
    cgroup = own[0][:MOST_CGROUP] if own else ""
    paths = [line.split(":", 2)[-1] for line in lines]
    return Program(pid=pid, name=name.strip()[:64], cgroup=cgroup, job=job(paths, told_job))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
