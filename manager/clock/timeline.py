"""The timeline's identity and its continuity over a restart of the manager.

The clocks live on in the agents: a new manager takes up the lines that they report, so that its first
solution goes on where the last manager's stopped.
"""

import contextlib
import math
import uuid
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from cwdp.errors import ManagerError
from cwdp.shared.bus.messages import ClockLine
from cwdp.shared.clocksync.timeline.hostlines import HostLines
from cwdp.shared.clocksync.timeline.track import BOUND_SIGMAS, Tracks

NS_PER_S = 1e9
LEAST_DRIFT_SIGMA = 25e-9
LARGEST_TIME_NS = 2**61
LARGEST_DRIFT = 1e-3
SEQ_PER_START = 1 << 32


class Identity(Struct, frozen=True, kw_only=True):
    """What a manager keeps in its state directory: the timeline's name, and how often it has started."""

    timeline: str
    starts: int

    @property
    def first_seq(self) -> int:
        """Where this start counts its updates from: above all those of earlier starts."""
        return self.starts * SEQ_PER_START


def load_identity(path: Path) -> tuple[Identity, bool]:
    """This start's identity, and whether an earlier start left one behind; it is written back at once.

    Raises:
        ManagerError: the file cannot be written.
    """
    earlier = None
    with contextlib.suppress(OSError, msgspec.DecodeError):
        earlier = msgspec.json.decode(path.read_bytes(), type=Identity)
    if earlier is None:
        identity = Identity(timeline=uuid.uuid4().hex, starts=1)
    else:
        identity = Identity(timeline=earlier.timeline, starts=earlier.starts + 1)
    save_identity(path, identity)
    return identity, earlier is not None


def save_identity(path: Path, identity: Identity) -> None:
    """Replace the file in one step."""
    draft = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(identity))
        draft.replace(path)
    except OSError as error:
        raise ManagerError(
            f"cannot write {path}: {error.strerror}",
            "give a directory that the manager may write with `--state-dir DIR`",
        ) from error


def is_running(local_ns: int, line: ClockLine | None) -> bool:
    """Whether what a host reports can carry the timeline on; numbers beyond all sense can't."""
    if line is None or line.state not in ("synced", "holdover"):
        return False
    numbers = (line.offset_ns, line.drift, line.bound_ns, line.bound_drift)
    times = (local_ns, line.ref_local_ns, line.offset_base_ns)
    return (
        all(math.isfinite(number) for number in numbers)
        and max(map(abs, times)) <= LARGEST_TIME_NS
        and abs(line.drift) <= LARGEST_DRIFT
        and min(line.bound_ns, line.bound_drift) >= 0
    )


class ContinuedTracks(Tracks):
    """Tracks that can begin from lines that agents follow already."""

    def adopt(self, lines: Mapping[int, tuple[int, ClockLine]]) -> None:
        """Take up a running timeline, before the first step.

        Rates are known as well as hosts say, and followed by offsets alone: slopes rest on what agents remember of rates
        that may have changed since.

        Args:
            lines: per slot, a reading of the host's clock in ns and the line that it followed then.
        """
        slots = np.fromiter(lines, np.int64, len(lines))
        now = [timeline_ns(local_ns, line) for local_ns, line in lines.values()]
        self._instant_ns = sorted(now)[len(now) // 2]
        of_slots = np.zeros(self.n_hosts, bool)
        of_slots[slots] = True
        self._filter.take(of_slots, self._followed(lines, self._instant_ns))
        self._locked[slots] = self._known_drift[slots] = True

    def take_word(self, lines: Mapping[int, tuple[int, ClockLine]]) -> None:
        """Have hosts whose agents were away go on as they themselves say, where they were followed elsewhere meanwhile.

        Local time is then what it would be had the agent never been away; what was measured since tells of the stamps of that
        time, which were not. Fits that rest on any of it are left out until they rest on none.

        Args:
            lines: as for `adopt`.
        """
        slots = np.fromiter(lines, np.int64, len(lines))
        slots = slots[self._locked[slots]]
        if self._instant_ns is None or not len(slots):
            return
        said, present = self._followed(lines, self._instant_ns), self._present(self._instant_ns)
        apart_ns = (said.g_ns - present.g_ns) - present.frac_ns
        elsewhere = np.zeros(self.n_hosts, bool)
        elsewhere[slots] = (apart_ns**2 > BOUND_SIGMAS**2 * (said.var + present.var))[slots]
        elsewhere[slots] |= self._changes.now[slots]
        self._filter.take(elsewhere, said)
        self._changes.go_on(elsewhere, self._instant_ns)
        self._suspect_rounds[elsewhere] = 0
        self._astray_ns[elsewhere] = 0.0

    def _followed(self, lines: Mapping[int, tuple[int, ClockLine]], instant_ns: int) -> HostLines:
        """What hosts say that they follow, at a time of the timeline; of use in the slots that are given."""
        here = HostLines.nothing(self.n_hosts)
        here.ref_ns[:] = instant_ns
        for slot, (local_ns, line) in lines.items():
            ahead_local_ns = round((instant_ns - timeline_ns(local_ns, line)) / (1 + line.drift))
            here.g_ns[slot] = instant_ns - (local_ns + ahead_local_ns)
            here.drift_ns[slot] = line.drift / (1 + line.drift) * NS_PER_S
            age_ns = abs(local_ns + ahead_local_ns - line.ref_local_ns)
            here.var[slot] = ((line.bound_ns + line.bound_drift * age_ns) / BOUND_SIGMAS) ** 2
            sigma_drift = max(line.bound_drift / BOUND_SIGMAS, LEAST_DRIFT_SIGMA)
            here.var_drift[slot] = (sigma_drift * NS_PER_S) ** 2
        return here


def timeline_ns(local_ns: int, line: ClockLine) -> int:
    """The timeline when a host's clock shows a time, by its line."""
    rest = line.offset_ns + line.drift * (local_ns - line.ref_local_ns)
    return local_ns + line.offset_base_ns + round(rest)
