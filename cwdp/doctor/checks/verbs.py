"""The verbs shim: whether programs find it and reach the agent."""

from collections.abc import Iterator

from cwdp.doctor.checks import programs
from cwdp.doctor.facts import Facts, Verbs
from cwdp.doctor.result import Result, Verdict

LIBMLX5 = "libmlx5"
MLX5 = "mlx5"


def shim(facts: Facts) -> Iterator[Result]:
    """Where the configuration has a section [verbs]: the library, the socket, and what can move queue pairs."""
    if facts.verbs is None or facts.config is None or facts.config.verbs is None:
        return
    lacks = "; this host has no libibverbs, so only programs in containers can use it"
    yield programs.library(
        "verbs shim", facts.verbs, "shim", remark="" if facts.verbs.has_libibverbs else lacks
    )
    yield programs.socket("verbs socket", facts.verbs, facts.config.verbs.socket, "docs/verbs.md")
    if any(port.device.startswith(MLX5) for port in facts.rdma_ports):
        yield _mlx5(facts.verbs)


def _mlx5(verbs: Verbs) -> Result:
    if verbs.libmlx5 is None:
        return _about_mlx5(
            "ok", "this host has no libmlx5: what can move queue pairs is told by those of containers"
        )
    if not verbs.moves_mlx5:
        what = f"libmlx5 {verbs.libmlx5} cannot move queue pairs that send; they take their paths when they are connected"
        return _about_mlx5("warn", what, "install libmlx5 1.17 or newer (rdma-core 34), also in containers")
    return _about_mlx5("ok", f"libmlx5 {verbs.libmlx5} moves queue pairs that send")


def _about_mlx5(verdict: Verdict, what: str, next_step: str = "") -> Result:
    return Result(name=LIBMLX5, verdict=verdict, what=what, next_step=next_step)
