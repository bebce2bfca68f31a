"""The rates that queue pairs are held to, given to whichever enforcer of slices the interface has.

By `htb` a queue pair has a class of its own below its slice's, whose ceiling is moved; by `edt` its row in the map has a
pace. Either way the limits of the slice stay, and so does `qp_rate`: a queue pair is never given more than these.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cwdp.congestion import leaf
from cwdp.dataplane.abi import Direction, Enforcer
from cwdp.slices.edt import pace_q18
from cwdp.slices.htb import QP_GUARANTEED_BPS, number_of

SAME = 0.005
"""A rate that differs by less from the one that was set is not worth a change."""

RENEW_NS = 1_000_000_000
"""Rates are set again now and then: who changes slices sets them back."""

F64 = NDArray[np.float64]


class Tables(Protocol):
    """What is used of the open maps of an interface; see `cwdp.dataplane.pinned.maps.Maps`."""

    qps: dict[Direction, NDArray[np.void]]
    slices: NDArray[np.void]
    slice_table: NDArray[np.void]


class Pacer:
    """Holds queue pairs of one interface to rates.

    Args:
        tables: its maps; they stay the caller's.
        ifindex: its index.
        frame_bytes: its longest Ethernet frame, without FCS.

    Attributes:
        failed: changes that the kernel refused.

    Raises:
        OSError: there is no netlink to be had.
    """

    def __init__(self, tables: Tables, ifindex: int, frame_bytes: int) -> None:
        self._pairs = tables.qps[Direction.EGRESS]
        self._slices, self._slice_table = tables.slices, tables.slice_table
        self._ifindex, self._frame_bytes = ifindex, frame_bytes
        self._netlink = leaf.open_netlink()
        self._set: dict[int, tuple[float, int]] = {}
        self.failed = 0

    @property
    def enforcer(self) -> Enforcer:
        """What holds rates on this interface now."""
        return Enforcer(int(self._slice_table["enforcer"][0]))

    @property
    def link_bps(self) -> int:
        """Of the link that is shared out; 0 where it is not."""
        return int(self._slice_table["link_bps"][0])

    def can_hold(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which queue pairs can be held to a rate of their own; shape (rows,)."""
        if self.enforcer is Enforcer.EDT:
            return np.ones(len(rows), dtype=bool)
        leaves = self._slices["leaves"][self._pairs["slice"][rows]]
        can: NDArray[np.bool_] = (self._pairs["priority"][rows] != 0) & (leaves > 0)
        return can

    def ceilings_bps(self, rows: NDArray[np.intp]) -> F64:
        """The most that slices allow each queue pair; shape (rows,)."""
        numbers = self._pairs["slice"][rows]
        own_bps, shared_bps = self._slices["qp_bps"][numbers], self._slices["ceiling_bps"][numbers]
        allowed = np.where(own_bps > 0, own_bps, shared_bps)
        return np.where(allowed > 0, allowed, self.link_bps).astype(np.float64)

    def hold(self, rows: NDArray[np.intp], rates_bps: F64, now_ns: int) -> None:
        """Have exactly these queue pairs held to these rates; those of before that are not named are let go.

        Args:
            rows: of the table of queue pairs by egress.
            rates_bps: shape (rows,), infinite for no rate.
            now_ns: CLOCK_MONOTONIC.
        """
        if self.enforcer is Enforcer.EDT:
            self._hold_departures(rows, rates_bps)
        elif self.enforcer is Enforcer.HTB:
            self._hold_classes(rows, rates_bps, now_ns)

    def release_all(self) -> None:
        """Hold nothing back, whoever held it."""
        if self.enforcer is Enforcer.EDT:
            self._hold_departures(np.flatnonzero(self._pairs["pace_q18"]), None)
        elif self.enforcer is Enforcer.HTB:
            for number in np.flatnonzero(self._slices["leaves"]):
                first, count = int(self._slices["class_id"][number]) + 1, int(self._slices["leaves"][number])
                for handle in range(first, first + count):
                    self._change(handle, int(number), np.inf)
            self._set.clear()

    def close(self) -> None:
        """Close the socket; what is held stays so."""
        self._netlink.close()

    def _hold_departures(self, rows: NDArray[np.intp], rates_bps: F64 | None) -> None:
        """Write paces; the dataplane writes the slice's own again at each change of slices."""
        slowest = self._slices["qp_pace_q18"][self._pairs["slice"][rows]]
        if rates_bps is not None:
            own = [0 if np.isinf(rate) else pace_q18(float(rate)) for rate in rates_bps]
            slowest = np.maximum(slowest, np.array(own, dtype=np.uint32))
        self._pairs["pace_q18"][rows] = slowest

    def _hold_classes(self, rows: NDArray[np.intp], rates_bps: F64, now_ns: int) -> None:
        """Set what has changed. Queue pairs that share a class share the sum of their rates."""
        wanted: dict[int, tuple[int, float]] = {}
        handles, numbers = self._pairs["priority"][rows], self._pairs["slice"][rows]
        for handle, number, rate in zip(handles.tolist(), numbers.tolist(), rates_bps.tolist(), strict=True):
            wanted[handle] = number, wanted.get(handle, (number, 0.0))[1] + rate
        for handle in self._set.keys() - wanted.keys():
            self._change(handle, number_of(handle), np.inf)
            del self._set[handle]
        for handle, (number, rate) in wanted.items():
            before, at_ns = self._set.get(handle, (np.inf, now_ns))
            if now_ns - at_ns > RENEW_NS or not math.isclose(rate, before, rel_tol=SAME):
                self._change(handle, number, rate)
                self._set[handle] = rate, now_ns
            if np.isinf(rate):
                self._set.pop(handle, None)

    def _change(self, handle: int, number: int, rate_bps: float) -> None:
        """Move the ceiling of a class, within what its slice allows."""
        record = self._slices[number]
        allowed_bps = int(record["qp_bps"])
        if not allowed_bps:
            return
        ceiling_bps = min(rate_bps, allowed_bps)
        message = leaf.change_class(
            self._ifindex,
            handle,
            int(record["class_id"]),
            leaf.Limits(
                rate_bps=min(QP_GUARANTEED_BPS, ceiling_bps),
                ceiling_bps=ceiling_bps,
                priority=int(record["priority"]),
                quantum_bytes=self._frame_bytes,
            ),
        )
        try:
            self._netlink.send(message)
        except OSError:
            self.failed += 1
        self.failed += leaf.take_errors(self._netlink)
