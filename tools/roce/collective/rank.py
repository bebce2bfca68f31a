"""A rank: what one NIC does in each iteration, and the lines that tell its host of it."""

from dataclasses import dataclass

from tools.roce.flows import line


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
    """

    id: int
    name: str
    host: str
    steps: tuple[RankStep, ...]
    iterations: int | None
    seed: int

    def lines(self) -> list[str]:
        """The lines of the plan for its host; they come after those of all flows."""
        lines = [line("rank", {"id": self.id, "iterations": self.iterations or 0, "seed": self.seed})]
        for step in self.steps:
            lines.append(line("step", {"compute_ns": step.compute_ns, "jitter_ns": step.jitter_ns}))
            lines += [line("await", {"flow": flow}) for flow in step.inputs]
            lines += [line("post", {"flow": flow}) for flow in step.outputs]
        return lines
