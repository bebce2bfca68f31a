"""What programs find that load a library of ours: the library, and the agent's socket."""

from cwdp.doctor.facts import Door
from cwdp.doctor.result import Result


def library(name: str, door: Door, target: str, remark: str = "") -> Result:
    """Whether the library is there, made by `make TARGET`."""
    if door.library is None:
        what = "its library is not here for programs to load"
        return Result(
            name=name, verdict="warn", what=what, next_step=f"make {target}, or install the package cwdp"
        )
    return Result(name=name, verdict="ok", what=f"{door.library}{remark}")


def socket(name: str, door: Door, path: str, docs: str) -> Result:
    """Whether programs reach the agent, and nobody in its place."""
    if door.socket == "missing":
        what = f"no socket at {path}, so programs find no agent"
        step = "start the agent; if it runs: journalctl -u cwdp-agent | grep 'programs cannot connect'"
        return Result(name=name, verdict="fail", what=what, next_step=step)
    if door.is_exposed:
        what = f"others may put a socket of theirs in the place of {path}"
        step = f"give it a folder that only root may write to: RuntimeDirectory=, see {docs}"
        return Result(name=name, verdict="warn", what=what, next_step=step)
    if door.socket == "closed":
        what = f"{path} is closed to ordinary users, so only root's programs find the agent"
        return Result(name=name, verdict="warn", what=what, next_step=f"chmod o+x on the folder of {path}")
    return Result(name=name, verdict="ok", what=f"programs reach the agent at {path}")
