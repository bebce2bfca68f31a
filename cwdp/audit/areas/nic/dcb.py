"""Priority flow control, traffic classes and how priorities are told (IEEE 802.1Qaz)."""

from collections.abc import Iterator

from cwdp.audit.answers import Dcb
from cwdp.audit.notes import Notes
from cwdp.audit.source import Source
from cwdp.audit.subjects import NET, Found, Nic
from cwdp.audit.unreadable import Unreadable

DSCP, PCP = 5, 24
"""IEEE_8021QAZ_APP_SEL_DSCP, DCB_APP_SEL_PCP (linux/dcbnl.h)."""

ALGORITHMS = {0: "strict", 1: "cbs", 2: "ets", 255: "vendor"}
PRIORITIES = 8
FACTS = ("pfc_priorities", "ets_algorithms", "ets_percent", "priority_classes", "dscp_priorities", "trust")
BY_MAP = ("mlx5_core", "mlx4_en")
"""Drivers that trust DSCPs as soon as one is mapped, and no longer when none is."""


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `dcb`; of hardware only."""
    yield from (_nic(source, nic) for nic in found.nics if source.exists(f"{NET}/{nic.name}/device"))


def _nic(source: Source, nic: Nic) -> Notes:
    notes = Notes("nic", nic.name)
    try:
        told = source.ask(Dcb, nic.name)
    except Unreadable as reason:
        notes.lack(FACTS, reason.message)
        return notes
    notes.note("pfc_priorities", lambda: [one for one in range(PRIORITIES) if _told(told.pfc) >> one & 1])
    notes.note("ets_algorithms", lambda: [ALGORITHMS.get(one, str(one)) for one in _list(told.algorithms)])
    notes.note("ets_percent", lambda: _list(told.percent))
    notes.note("priority_classes", lambda: _list(told.classes))
    notes.note("dscp_priorities", lambda: [f"{dscp}:{priority}" for dscp, priority in sorted(_dscps(told))])
    notes.note("trust", lambda: _trust(source, nic.name, told))
    return notes


def _told(number: int | None) -> int:
    if number is None:
        raise Unreadable("the driver does not tell")
    return number


def _list(numbers: list[int] | None) -> list[int]:
    if numbers is None:
        raise Unreadable("the driver does not tell")
    return numbers


def _dscps(told: Dcb) -> list[tuple[int, int]]:
    return [(one[1], one[2]) for one in told.applications if len(one) == 3 and one[0] == DSCP]


def _trust(source: Source, name: str, told: Dcb) -> str:
    """By the kernel's table, else by OFED's file, else by what is known of the driver."""
    if told.trust:
        return "dscp" if told.trust[0] == DSCP else "pcp"
    ofed = f"{NET}/{name}/qos/trust"
    if source.exists(ofed) and (word := source.text(ofed)) in ("dscp", "pcp"):
        return word
    if source.target(f"{NET}/{name}/device/driver").rpartition("/")[2] in BY_MAP:
        return "dscp" if _dscps(told) else "pcp"
    raise Unreadable("the driver does not tell")
