"""The verbs shim: whether programs find it and reach the agent."""

from collections.abc import Iterator

from cwdp.doctor.facts import Facts, Verbs
from cwdp.doctor.result import Result, Verdict

LIBRARY, SOCKET, LIBMLX5 = "verbs shim", "verbs socket", "libmlx5"
MLX5 = "mlx5"


def shim(facts: Facts) -> Iterator[Result]:
    """Where the configuration has a section [verbs]: the library, the socket, and what can move queue pairs."""
    if facts.verbs is None or facts.config is None or facts.config.verbs is None:
        return
    yield _library(facts.verbs)
    yield _socket(facts.verbs, facts.config.verbs.socket)
    if any(port.device.startswith(MLX5) for port in facts.rdma_ports):
        yield _mlx5(facts.verbs)


def _result(name: str, verdict: Verdict, what: str, next_step: str = "") -> Result:
    return Result(name=name, verdict=verdict, what=what, next_step=next_step)


def _library(verbs: Verbs) -> Result:
    if verbs.library is None:
        return _result(
            LIBRARY,
            "warn",
            "its library is not here for programs to load",
            "make shim, or install the package cwdp",
        )
    below = (
        ""
        if verbs.has_libibverbs
        else "; this host has no libibverbs, so only programs in containers can use it"
    )
    return _result(LIBRARY, "ok", f"{verbs.library}{below}")


def _socket(verbs: Verbs, path: str) -> Result:
    if verbs.socket == "missing":
        step = "start the agent; if it runs: journalctl -u cwdp-agent | grep 'programs cannot connect'"
        return _result(SOCKET, "fail", f"no socket at {path}, so programs find no agent", step)
    if verbs.is_exposed:
        step = "give it a folder that only root may write to: RuntimeDirectory=, see docs/verbs.md"
        return _result(SOCKET, "warn", f"others may put a socket of theirs in the place of {path}", step)
    if verbs.socket == "closed":
        step = f"chmod o+x on the folder of {path}"
        return _result(
            SOCKET,
            "warn",
            f"{path} is closed to ordinary users, so only root's programs find the agent",
            step,
        )
    return _result(SOCKET, "ok", f"programs reach the agent at {path}")


def _mlx5(verbs: Verbs) -> Result:
    if verbs.libmlx5 is None:
        return _result(
            LIBMLX5,
            "ok",
            "this host has no libmlx5: what can move queue pairs is told by those of containers",
        )
    if not verbs.moves_mlx5:
        what = f"libmlx5 {verbs.libmlx5} cannot move queue pairs that send; they take their paths when they are connected"
        return _result(
            LIBMLX5, "warn", what, "install libmlx5 1.17 or newer (rdma-core 34), also in containers"
        )
    return _result(LIBMLX5, "ok", f"libmlx5 {verbs.libmlx5} moves queue pairs that send")
