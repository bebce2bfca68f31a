"""What an agent takes from a leader at most, however well it is signed: what lies beyond harms hosts or says nothing."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable

from cwdp.shared.bus.messages import ClockLine, ClockUpdate, Desired, EventName

MOST_PAIRS_PER_S = 100_000.0
"""Of probes that leave by a NIC."""

MOST_PROBES, MOST_SPORTS, MOST_STEERED, MOST_CONNECTIONS = 1_024, 256, 1 << 20, 1 << 16
DEAD_AFTER_MS = (1.0, 10_000.0)
MOST_DRIFT = 0.01
"""No clock is off by 1 %."""

MOST_JUMP_NS = 1_000_000_000
"""That a synced clock is moved by within one timeline: it was right to some microseconds."""

COUNTERS = ("desired_refused", "clock_refused")


class Bounds:
    """Says what is refused, each time that it is another thing.

    Args:
        tell: tells the manager that something was refused, and why.

    Attributes:
        counters: what was refused (`COUNTERS`).
    """

    def __init__(self, tell: Callable[[EventName, str | None, str], None]) -> None:
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._tell, self._told = tell, ""
        self._timeline = ""
        self._line: ClockLine | None = None

    def admits_document(self, desired: Desired) -> bool:
        """Whether to do as a document says."""
        return self._admits("desired_refused", document_excess(desired))

    def admits_clock(self, update: ClockUpdate) -> bool:
        """Whether to follow a solution."""
        before = self._line if update.timeline == self._timeline else None
        if not self._admits("clock_refused", clock_excess(before, update.line)):
            return False
        self._timeline, self._line = update.timeline, update.line
        return True

    def _admits(self, kind: EventName, excess: str) -> bool:
        if excess:
            self.counters[kind] += 1
            if excess != self._told:
                self._told = excess
                self._tell(kind, None, excess)
        return not excess


def document_excess(desired: Desired) -> str:
    """Why a document is not to be followed; nothing where it is."""
    rates: defaultdict[str, float] = defaultdict(float)
    for edge in desired.probes:
        rates[edge.src] += edge.pairs_per_s if edge.pairs_per_s >= 0 else math.inf
        if not 0 < len(edge.sports) <= MOST_SPORTS or len(edge.sports) != len(edge.reply_sports):
            return f"{len(edge.sports)} source ports there and {len(edge.reply_sports)} back to probe {edge.dst} by"
    fast = next((nic for nic, rate in rates.items() if not rate <= MOST_PAIRS_PER_S), None)
    if fast is not None:
        return f"{rates[fast]:g} pairs of probes a second from {fast}; {MOST_PAIRS_PER_S:g} at most"
    if len(desired.probes) > MOST_PROBES or len(desired.steer) > MOST_STEERED:
        return f"{len(desired.probes)} peers to probe, {len(desired.steer)} queue pairs to steer"
    if len(desired.tcp) > MOST_CONNECTIONS:
        return f"{len(desired.tcp)} TCP connections to steer; {MOST_CONNECTIONS} at most"
    if desired.roce is not None and not DEAD_AFTER_MS[0] <= desired.roce.dead_after_ms <= DEAD_AFTER_MS[1]:
        return f"paths given up after {desired.roce.dead_after_ms:g} ms; {DEAD_AFTER_MS[0]:g} to {DEAD_AFTER_MS[1]:g} are taken"
    return ""


def clock_excess(before: ClockLine | None, line: ClockLine) -> str:
    """Why a solution is not to be followed, given the one before in that timeline; nothing where it is."""
    if not all(map(math.isfinite, (line.offset_ns, line.drift, line.bound_ns, line.bound_drift))):
        return "a clock's line that is no number"
    if abs(line.drift) > MOST_DRIFT or line.bound_ns < 0 or line.bound_drift < 0:
        return f"a clock that drifts by {line.drift:g}, right to {line.bound_ns:g} ns"
    if before is None or before.state != "synced" or line.state != "synced" or line.found_anew:
        return ""
    jump_ns = _shown_ns(line, line.ref_local_ns) - _shown_ns(before, line.ref_local_ns)
    return f"a clock moved by {jump_ns / 1e9:.3f} s" if abs(jump_ns) > MOST_JUMP_NS else ""


def _shown_ns(line: ClockLine, local_ns: int) -> int:
    return line.offset_base_ns + round(line.offset_ns + line.drift * (local_ns - line.ref_local_ns))
