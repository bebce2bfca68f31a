"""Ports of RDMA devices (Documentation/ABI/stable/sysfs-class-infiniband)."""

import ipaddress
import re
from collections.abc import Iterator
from functools import partial

from cwdp.audit import growth
from cwdp.audit.growth import First
from cwdp.audit.notes import Notes, shown, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import INFINIBAND, Found, RdmaPort
from cwdp.audit.unreadable import Unreadable
from cwdp.rdma.gid import gid_text
from cwdp.rdma.sysfs import after_colon, is_gid, rate_bps

CONFIGURATION = "sys/kernel/config/rdma_cm"
GIDS = 1024
COUNTERS = {
    "out_of_sequence": ("out_of_sequence", "res_oos_drop_count", "out_of_seq_request"),
    "ack_timeouts": ("local_ack_timeout_err", "to_retransmits", "completer_retry_err"),
    "symbol_errors": ("symbol_error",),
    "link_downed": ("link_downed",),
}
"""What counters are called: by mlx5_ib, bnxt_re, rdma_rxe."""


def read(source: Source, found: Found, first: First) -> Iterator[Notes]:
    """Facts of the area `rdma`."""
    growth.wait(source, first)
    later = source.later()
    for port in found.ports:
        notes = Notes("rdma", port.name)
        _note_device(notes, source, port)
        _note_port(notes, source, port)
        _note_settings(notes, source, port)
        counted = growth.of_port(source, port)
        for fact, names in COUNTERS.items():
            notes.note(fact, partial(_counter, counted, names))
        growth.note(notes, first, growth.of_port(later, port))
        yield notes


def _note_device(notes: Notes, source: Source, port: RdmaPort) -> None:
    folder = f"{INFINIBAND}/{port.device}"
    if port.nic:
        notes.note("netdev", lambda: port.nic)
    for fact, name in (
        ("board", "board_id"),
        ("firmware", "fw_ver"),
        ("device_type", "hca_type"),
        ("node_description", "node_desc"),
    ):
        notes.note(fact, partial(_word, source, f"{folder}/{name}"))


def _note_port(notes: Notes, source: Source, port: RdmaPort) -> None:
    notes.note("state", lambda: after_colon(_word(source, f"{port.path}/state")))
    notes.note("physical_state", lambda: after_colon(_word(source, f"{port.path}/phys_state")))
    notes.note("link_layer", lambda: _word(source, f"{port.path}/link_layer"))
    notes.note("rate_bps", lambda: _rate(source.text(f"{port.path}/rate")))
    notes.note("lmc", lambda: whole(source.text(f"{port.path}/lid_mask_count")))
    notes.note("sm_lid", lambda: whole(source.text(f"{port.path}/sm_lid")))
    notes.note("gids_v2", lambda: sum(_is_global_v2(source, port, one) for one in _gids(source, port)))


def _note_settings(notes: Notes, source: Source, port: RdmaPort) -> None:
    folder = f"{CONFIGURATION}/{port.device}/ports/{port.port}"
    notes.note("roce_mode", lambda: _configured(source, f"{folder}/default_roce_mode"))
    notes.note("roce_tos", lambda: whole(_configured(source, f"{folder}/default_roce_tos")))
    notes.note("traffic_class", lambda: _traffic_class(source, port))


def _word(source: Source, path: str) -> str:
    text = source.text(path)
    if not text:
        raise Unreadable("the driver does not tell")
    return text


def _rate(text: str) -> int:
    rate = rate_bps(text[:32])
    if rate is None:
        raise Unreadable(f"not a rate: '{shown(text)}'")
    return rate


def _gids(source: Source, port: RdmaPort) -> list[str]:
    return source.names(f"{port.path}/gids", GIDS)


def _is_global_v2(source: Source, port: RdmaPort, index: str) -> bool:
    """Whether an entry of the GID table is for RoCE v2 and routable; one that is not in use is neither."""
    try:
        text = source.text(f"{port.path}/gids/{index}")
    except Unreadable:
        return False
    try:
        if not is_gid(text) or ipaddress.ip_address(gid_text(text)).is_link_local:
            return False
        return source.text(f"{port.path}/gid_attrs/types/{index}") == "RoCE v2"
    except ValueError as error:
        raise Unreadable(f"not a GID: '{shown(text)}'") from error


def _configured(source: Source, path: str) -> str:
    """Documentation/ABI/testing/configfs-rdma_cm: the folder of a device is there once somebody has made it."""
    if not source.exists(CONFIGURATION):
        raise Unreadable("configfs has no folder of rdma_cm")
    if not source.exists(path):
        raise Unreadable("configfs has no folder of this device")
    return _word(source, path)


def _traffic_class(source: Source, port: RdmaPort) -> int:
    """NVIDIA's driver, not the kernel's, has it: `Global tclass=106`, or nothing where none is forced."""
    path = f"{INFINIBAND}/{port.device}/tc/{port.port}/traffic_class"
    if not source.exists(path):
        raise Unreadable("the driver does not tell")
    text = source.text(path)
    if not text:
        return -1
    found = re.match(r"Global tclass=(\d{1,3})\b", text, re.ASCII)
    if found is None:
        raise Unreadable(f"not understood: '{shown(text)}'")
    return int(found[1])


def _counter(counted: dict[str, int], names: tuple[str, ...]) -> int:
    for name in names:
        if name in counted:
            return counted[name]
    raise Unreadable("the driver does not tell")
