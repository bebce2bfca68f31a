"""What has changed of a host's document since it was written whole, so that a move of one queue pair is a short message.

A change names the document that it changes and holds all changes since, so what a host is to do is known from these
two whatever else got lost, and a change to another document says nothing.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import zip_longest
from typing import TypeVar

import msgspec
from msgspec import Struct

from cwdp.shared.bus.messages import Desired, Detour, NicSlices, ReportInterval, Spread, SteerQp, TraceOrder
from cwdp.shared.tcp import SteerTcp, TcpKey, tcp_key

KIND = "change"

QpKey = tuple[str, str, int]
PeerKey = tuple[str, str]
_T = TypeVar("_T")
_K = TypeVar("_K", bound=Hashable)


class Change(Struct, frozen=True, kw_only=True):
    """What is different from the document of version `base` of the same leader; with it, it is that of `version`.

    Entries replace those of the same key or are new; those under `..._gone` are no more. `slices` are all, or None for
    those that were. Probes and `roce` are as they were.
    """

    host: str
    epoch: int
    led_since_s: float
    version: int
    base: int
    report_interval_s: ReportInterval
    slices: list[NicSlices] | None = None
    steer: list[SteerQp] = []
    steer_gone: list[QpKey] = []
    traces: list[TraceOrder] = []
    traces_gone: list[PeerKey] = []
    detours: list[Detour] = []
    detours_gone: list[PeerKey] = []
    spreads: list[Spread] = []
    spreads_gone: list[PeerKey] = []
    tcp: list[SteerTcp] = []
    tcp_gone: list[TcpKey] = []
    tcp_traces: list[TraceOrder] = []
    tcp_traces_gone: list[PeerKey] = []


def change_of(base: Desired, document: Desired) -> Change | None:
    """What makes one document the other; None where only the whole can be told."""
    if base.probes != document.probes or base.roce != document.roce or not _is_of_same_leader(base, document):
        return None
    steer, steer_gone = _difference(base.steer, document.steer, _qp)
    traces, traces_gone = _difference(base.traces, document.traces, _peer)
    detours, detours_gone = _difference(base.detours, document.detours, _peer)
    tcp, tcp_gone = _difference(base.tcp, document.tcp, tcp_key)
    tcp_traces, tcp_traces_gone = _difference(base.tcp_traces, document.tcp_traces, _peer)
    spreads, spreads_gone = _difference(base.spreads, document.spreads, _peer)
    return Change(
        host=document.host,
        epoch=document.epoch,
        led_since_s=document.led_since_s,
        version=document.version,
        base=base.version,
        report_interval_s=document.report_interval_s,
        slices=None if document.slices == base.slices else document.slices,
        steer=steer,
        steer_gone=steer_gone,
        traces=traces,
        traces_gone=traces_gone,
        detours=detours,
        detours_gone=detours_gone,
        spreads=spreads,
        spreads_gone=spreads_gone,
        tcp=tcp,
        tcp_gone=tcp_gone,
        tcp_traces=tcp_traces,
        tcp_traces_gone=tcp_traces_gone,
    )


def changes(base: Desired, change: Change) -> bool:
    """Whether a change is one to this document."""
    return _is_of_same_leader(base, change) and change.base == base.version


def changed(base: Desired, change: Change) -> Desired:
    """The document that a change makes of the one that it is to; the order of new entries is not kept."""
    return msgspec.structs.replace(
        base,
        version=change.version,
        report_interval_s=change.report_interval_s,
        slices=base.slices if change.slices is None else change.slices,
        steer=_with(base.steer, change.steer, change.steer_gone, _qp),
        traces=_with(base.traces, change.traces, change.traces_gone, _peer),
        detours=_with(base.detours, change.detours, change.detours_gone, _peer),
        spreads=_with(base.spreads, change.spreads, change.spreads_gone, _peer),
        tcp=_with(base.tcp, change.tcp, change.tcp_gone, tcp_key),
        tcp_traces=_with(base.tcp_traces, change.tcp_traces, change.tcp_traces_gone, _peer),
    )


def _difference(
    before: Sequence[_T], after: Sequence[_T], key: Callable[[_T], _K]
) -> tuple[list[_T], list[_K]]:
    """Which entries are new or others, and the keys of those that are gone; of like keys the last counts."""
    differ = [pair for pair in zip_longest(before, after) if pair[0] != pair[1]]
    old = {key(one): one for one, _ in differ if one is not None}
    new = {key(one): one for _, one in differ if one is not None}
    return [one for name, one in new.items() if old.get(name) != one], [
        name for name in old if name not in new
    ]


def _with(base: list[_T], put: list[_T], gone: list[_K], key: Callable[[_T], _K]) -> list[_T]:
    if not put and not gone:
        return base
    found = {key(one): one for one in base}
    for name in gone:
        found.pop(name, None)
    return list((found | {key(one): one for one in put}).values())


def _qp(one: SteerQp) -> QpKey:
    return one.nic, one.dst_addr, one.qpn


def _peer(one: TraceOrder | Detour | Spread) -> PeerKey:
    return one.nic, one.dst_addr


def _is_of_same_leader(base: Desired, other: Desired | Change) -> bool:
    return (base.host, base.epoch, base.led_since_s) == (other.host, other.epoch, other.led_since_s)
