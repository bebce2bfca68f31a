"""What the members of a collective do, step by step; a member is known by its position among the n of them. No I/O."""

from collections.abc import Callable
from dataclasses import dataclass

MICROBATCHES = 4


@dataclass(frozen=True)
class Step:
    """A step waits for a message of each of `receives`, then computes, then sends a message to each of `sends`.

    `compute_share` is how much of an iteration's computing is done in it.
    """

    receives: tuple[int, ...] = ()
    sends: tuple[int, ...] = ()
    compute_share: float = 0.0


@dataclass(frozen=True)
class Collective:
    """`steps(position, n)` of a member, and `parts(n)`: in how many messages of one size its buffer is cut."""

    steps: Callable[[int, int], list[Step]]
    parts: Callable[[int], int]


def ring(position: int, n: int) -> list[Step]:
    """All-reduce in 2(n-1) rounds of 1/n of the buffer each, first reduced and then gathered along the ring."""
    sends, receives = ((position + 1) % n,), ((position - 1) % n,)
    return [
        Step(sends=sends, compute_share=1.0),
        *[Step(receives, sends)] * (2 * n - 3),
        Step(receives),
    ]


def all_to_all(position: int, n: int) -> list[Step]:
    """Each sends 1/n of its buffer to each other, all at once."""
    others = tuple((position + distance) % n for distance in range(1, n))
    return [Step(sends=others, compute_share=1.0), Step(others)]


def pipeline(position: int, n: int) -> list[Step]:
    """Microbatches go forward from the first member to the last, each computed when it arrives, and then all back.

    Without the way back the first member would wait for nobody.
    """
    before = (position - 1,) if position > 0 else ()
    after = (position + 1,) if position < n - 1 else ()
    share = 0.5 / MICROBATCHES
    return [Step(before, after, share)] * MICROBATCHES + [Step(after, before, share)] * MICROBATCHES


def tree(position: int, n: int) -> list[Step]:
    """All-reduce over a binary tree: the whole buffer is reduced up to the first member and broadcast down again."""
    above = ((position - 1) // 2,) if position > 0 else ()
    below = tuple(child for child in (2 * position + 1, 2 * position + 2) if child < n)
    return [Step(compute_share=1.0), Step(below, above), Step(above, below)]


COLLECTIVES: dict[str, Collective] = {
    "ring": Collective(ring, lambda n: n),
    "all-to-all": Collective(all_to_all, lambda n: n),
    "pipeline": Collective(pipeline, lambda _: MICROBATCHES),
    "tree": Collective(tree, lambda _: 1),
}
