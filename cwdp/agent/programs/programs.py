"""What is known of a process of this host."""

from pathlib import Path

from cwdp.agent.programs.jobs import job
from cwdp.shared.verbs import Program

MOST_CGROUP = 512
_STARTTIME = 19
"""Its place behind the program's name."""


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


def started(pid: int, proc: Path = Path("/proc")) -> int | None:
    """When a process was started, in clock ticks since the host was (proc_pid_stat(5)); None where it is gone."""
    words = _text(proc / str(pid) / "stat").rpartition(")")[2].split()
    return int(words[_STARTTIME]) if len(words) > _STARTTIME else None


def environment(pid: int, proc: Path = Path("/proc")) -> dict[str, str]:
    """The environment that a process was started with; empty where it cannot be read."""
    pairs = (line.partition("=") for line in _text(proc / str(pid) / "environ").split("\0"))
    return {name: value for name, _, value in pairs if name}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
