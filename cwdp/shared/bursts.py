"""Bursts of queue pairs, as agents tell of them."""

from msgspec import Struct

from cwdp.shared.bus.messages import FromAgent


class NicBursts(Struct, frozen=True, kw_only=True):
    """Bursts of a NIC's queue pairs that are over: `cwdp.shared.bus.records.BURST_ROW`s."""

    nic: str
    rows: bytes


class BurstReport(FromAgent, frozen=True, kw_only=True):
    """Bursts of some NICs that have ended since the last report."""

    nics: list[NicBursts]
