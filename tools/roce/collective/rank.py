"""A rank: what one NIC does in each iteration, and the lines that tell its host of it."""

from dataclasses import dataclass

from cwdp.errors import ConfigError
from tools.roce.flows import line


@dataclass(frozen=True)
class Stall:
    """A rank takes no notice of what arrives for `stall_ns` at the end of each `every_ns`; its NIC acknowledges it."""

    stall_ns: int
    every_ns: int

    def __post_init__(self) -> None:
        if not 0 < self.stall_ns < self.every_ns:
            raise ConfigError(
                f"a stall of {self.stall_ns} ns every {self.every_ns} ns",
                "Give a stall that is shorter than the time from one to the next, such as 50ms/1s.",
            )


@dataclass(frozen=True, kw_only=True)
class RankStep:
    """A step of a rank.

    Attributes:
        communicator: the name of the one that it is of.
        compute_ns: how long it computes after its inputs have arrived.
        jitter_ns: the most that an iteration computes longer or shorter.
        inputs: the flows of which it waits for a message each.
        outputs: the flows to which it then posts a message each.
    """

    communicator: str
    compute_ns: int
    jitter_ns: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A rank goes through its steps in order, again and again.

    Attributes:
        id: tells ranks apart.
        name: HOST/NIC.
        host: where it is.
        steps: of each iteration.
        iterations: how many, None for until the end of the run.
        seed: draws how long each iteration computes.
        stall: when it stands still, None for never.
    """

    id: int
    name: str
    host: str
    steps: tuple[RankStep, ...]
    iterations: int | None
    seed: int
    stall: Stall | None = None

    def lines(self) -> list[str]:
        """The lines of the plan for its host; they come after those of all flows."""
        settings = {
            "id": self.id,
            "iterations": self.iterations or 0,
            "seed": self.seed,
            "stall_ns": self.stall.stall_ns if self.stall else 0,
            "stall_every_ns": self.stall.every_ns if self.stall else 0,
        }
        lines = [line("rank", settings)]
        for step in self.steps:
            lines.append(line("step", {"compute_ns": step.compute_ns, "jitter_ns": step.jitter_ns}))
            lines += [line("await", {"flow": flow}) for flow in step.inputs]
            lines += [line("post", {"flow": flow}) for flow in step.outputs]
        return lines
