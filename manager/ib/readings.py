"""What one reader tells of a subnet, put together from its messages. No I/O."""

from collections import Counter
from dataclasses import replace

import numpy as np

from cwdp.shared.ib.counters import NAMES, Growth
from cwdp.shared.ib.reports import IbGrowth, IbSubnet, IbTables, unpack_growth, unpack_tables
from cwdp.shared.ib.subnet import Subnet, unpack

REASONS = ("ok", "not_sane", "of_another_reading", "not_whole")
"""What becomes of messages: the last two are made up for when the subnet is told again."""


class Reading:
    """A reader as the manager has it.

    Attributes:
        subnet: the latest that is whole; None before the first.
        growth: of its ports' counters, of the latest second that is whole; None before the first of this subnet.
        number: of the subnet.
        heard_s: when the reader was heard last, by the manager's monotonic clock.
        trouble: why it cannot read the subnet now, "" where it can.
    """

    def __init__(self) -> None:
        self.subnet: Subnet | None = None
        self.growth: Growth | None = None
        self.number = 0
        self.heard_s = float("-inf")
        self.trouble = ""
        self._pieces: dict[int, bytes] = {}
        self._pieces_of = 0
        self._parts: dict[int, Growth] = {}

    def hear_subnet(self, message: IbSubnet, now_s: float) -> str:
        """A piece of a subnet; returns what became of it (`REASONS`)."""
        self.heard_s = now_s
        if message.number != self._pieces_of:
            self._pieces, self._pieces_of = {}, message.number
        self._pieces[message.part] = message.data
        if len(self._pieces) < message.parts:
            return "ok"
        data = b"".join(self._pieces[part] for part in sorted(self._pieces))
        self._pieces = {}
        if message.number == self.number:
            return "ok"
        try:
            self._take(unpack(data), message.number)
        except ValueError:
            return "not_sane"
        return "ok"

    def hear_tables(self, message: IbTables, now_s: float) -> str:
        """Tables that are others."""
        self.heard_s = now_s
        if self.subnet is None or message.after != self.number:
            return "of_another_reading"
        try:
            tables = unpack_tables(message.data, self.subnet.tables)
        except ValueError:
            return "not_sane"
        self.subnet, self.number = replace(self.subnet, tables=tables), message.number
        return "ok"

    def hear_growth(self, message: IbGrowth, now_s: float) -> str:
        """Counters, or that the reader is there."""
        self.heard_s, self.trouble = now_s, message.trouble
        if not message.ports:
            return "ok"
        if self.subnet is None or message.number != self.number:
            return "of_another_reading"
        count = len(self.subnet.ports)
        if message.first + message.ports > count:
            return "not_sane"
        try:
            self._parts[message.first] = unpack_growth(message.data, message.ports)
        except ValueError:
            return "not_sane"
        if message.first + message.ports == count:
            return self._join(count)
        return "ok"

    def _join(self, count: int) -> str:
        parts, self._parts = [self._parts[first] for first in sorted(self._parts)], {}
        if sum(len(part.per_s) for part in parts) != count:
            return "not_whole"
        self.growth = Growth(
            np.concatenate([part.per_s for part in parts]).reshape(-1, len(NAMES)),
            np.concatenate([part.stuck for part in parts]).reshape(-1, len(NAMES)),
        )
        return "ok"

    def _take(self, subnet: Subnet, number: int) -> None:
        if self.subnet is None or not _have_same_ports(subnet, self.subnet):
            self.growth = None
        self.subnet, self.number, self._parts = subnet, number, {}


def _have_same_ports(a: Subnet, b: Subnet) -> bool:
    """Whether each row is of the same port in both."""
    return np.array_equal(a.guids, b.guids) and all(
        np.array_equal(a.ports[name], b.ports[name]) for name in ("node", "number")
    )


def no_results() -> Counter[str]:
    """Messages by what became of them."""
    return Counter(dict.fromkeys(REASONS, 0))
