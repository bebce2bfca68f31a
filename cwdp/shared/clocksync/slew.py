"""The published clock line: moved towards its target without a step."""

from dataclasses import dataclass

from cwdp.shared.clocksync._types import NS_PER_S

MAX_SLEW = 500e-6


@dataclass(frozen=True, slots=True)
class ClockLine:
    """global = local + offset + drift * (local - ref_local).

    Attributes:
        ref_local_ns: on the host's local clock.
        offset_ns, offset_frac_ns: the offset at ref is their sum (int, float).
        drift: dimensionless.
    """

    ref_local_ns: int
    offset_ns: int
    offset_frac_ns: float
    drift: float

    def at(self, local_ns: int) -> "ClockLine":
        """The same line with another reference."""
        frac = self.offset_frac_ns + self.drift * (local_ns - self.ref_local_ns)
        whole = round(frac)
        return ClockLine(local_ns, self.offset_ns + whole, frac - whole, self.drift)

    def minus_ns(self, other: "ClockLine", local_ns: int) -> float:
        """How far this line lies above another at a local time, ns."""
        mine, theirs = self.at(local_ns), other.at(local_ns)
        return (mine.offset_ns - theirs.offset_ns) + (mine.offset_frac_ns - theirs.offset_frac_ns)


def slew(current: ClockLine | None, target: ClockLine, now_local_ns: int, slew_s: float = 1.0) -> ClockLine:
    """The line to publish now.

    It starts where the current one stands and meets the target after `slew_s`, or later where that
    would change the rate by more than `MAX_SLEW` against the target's. Before the first lock
    (`current` is None) it is the target itself.

    Args:
        current: the line published now, or None.
        target: the line that the last solution asks for.
        now_local_ns: the host's local time.
        slew_s: when the lines shall meet, seconds, above 0.

    Returns:
        A line with its reference at `now_local_ns`.
    """
    goal = target.at(now_local_ns)
    if current is None:
        return goal
    here = current.at(now_local_ns)
    behind = goal.minus_ns(here, now_local_ns)
    rate = max(-MAX_SLEW, min(MAX_SLEW, behind / (slew_s * NS_PER_S)))
    return ClockLine(now_local_ns, here.offset_ns, here.offset_frac_ns, goal.drift + rate)
