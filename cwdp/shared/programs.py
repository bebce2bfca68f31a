"""What is known of a process of this host."""

from pathlib import Path

from cwdp.shared.verbs import Program


def program(pid: int, proc: Path = Path("/proc")) -> Program:
    """What is known of a process; it may be gone."""
    name, cgroup = (_text(proc / str(pid) / what) for what in ("comm", "cgroup"))
    own = [line.removeprefix("0::") for line in cgroup.splitlines() if line.startswith("0::")]
    return Program(pid=pid, name=name.strip()[:64], cgroup=own[0][:512] if own else "")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
