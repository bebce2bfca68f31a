"""What an audit's flows came to in sum."""

from msgspec import Struct

from cwdp.shared.rates import format_rate


class Carried(Struct, frozen=True, kw_only=True):
    """Of all rounds.

    Attributes:
        rounds: how many there were.
        cap_bps: that no flow was to exceed; 0 for no cap.
        links, filled: of the fabric, one way each; those that were filled.
        filled_after: after how many rounds all were; 0 where some were not.
        flow_bps: what most flows carried that shared no link.
        halves_bps: what each half of the fabric sent to the other at the same time, in sum; 0 for unknown.
        halves_bound_bps: what the links would carry of it, by what they carry one by one.
    """

    rounds: int
    cap_bps: int
    links: int
    filled: int
    filled_after: int
    flow_bps: float
    halves_bps: float
    halves_bound_bps: float

    def in_words(self) -> str:
        """For people."""
        how = f"had flows of at most {format_rate(self.cap_bps)}" if self.cap_bps else "were filled"
        when = (
            f"after {self.filled_after} rounds of {self.rounds}"
            if self.filled_after
            else f"in {self.rounds} rounds"
        )
        filled = f"{self.filled:,} of {self.links:,} links, one way each, {how} {when}"
        usual = f"most flows carried {format_rate(self.flow_bps)}"
        if not self.halves_bound_bps:
            return f"{filled}; {usual}"
        halves = f"halves of the fabric sent each other {format_rate(self.halves_bps)}"
        return f"{filled}; {usual}; {halves} of {format_rate(self.halves_bound_bps)}"
