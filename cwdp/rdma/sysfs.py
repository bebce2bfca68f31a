"""RDMA devices, ports, GIDs and counters, as the kernel shows them below /sys/class/infiniband.

The files and what they hold: Documentation/ABI/stable/sysfs-class-infiniband of the Linux kernel.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cwdp.errors import RdmaError
from cwdp.rdma.gid import gid_bytes, gid_text
from cwdp.rdma.ib.lid import LID_MAX, LMC_MAX

SYSFS = Path("/sys/class/infiniband")
COUNTER_GROUPS = ("counters", "hw_counters")
NO_COUNTERS = {"lifespan"}  # how long the kernel keeps a reading, in ms
RATE = re.compile(r"([\d.]+) Gb/sec")
NO_DEVICE_HINT = (
    "load the NIC's RDMA driver (mlx5_ib, irdma, bnxt_re ...), or for Soft-RoCE:\n"
    "  modprobe rdma_rxe && rdma link add rxe0 type rxe netdev IFNAME"
)


@dataclass(frozen=True)
class Device:
    """One RDMA device; `node_guid` is written as the kernel does, `firmware` is None where it has none."""

    device: str
    node_type: str
    firmware: str | None
    node_guid: str


@dataclass(frozen=True)
class Port:
    """One port; `rate_bps` is None where the kernel does not say, `netdev` where there is none."""

    device: str
    port: int
    state: str
    physical_state: str
    link_layer: str
    rate_bps: int | None
    netdev: str | None


@dataclass(frozen=True)
class Gid:
    """One entry of a port's GID table (IBTA 4.1.1); `type` is "RoCE v1", "RoCE v2" or "IB"."""

    device: str
    port: int
    index: int
    gid: str
    type: str
    netdev: str | None


@dataclass(frozen=True)
class Counter:
    """One counter of a port: of the group `counters` (IBTA 16.1.3.5) or `hw_counters` (the driver's own)."""

    device: str
    port: int
    group: str
    name: str
    value: int


def devices(root: Path = SYSFS) -> list[Device]:
    """Every RDMA device, by name.

    Raises:
        RdmaError: there is none.
    """
    found = [
        Device(
            device=where.name,
            node_type=after_colon(_read(where / "node_type")),
            firmware=_read(where / "fw_ver") or None,
            node_guid=_read(where / "node_guid"),
        )
        for where in _device_folders(root)
    ]
    if not found:
        raise RdmaError("this host has no RDMA device", NO_DEVICE_HINT)
    return found


def ports(root: Path = SYSFS) -> list[Port]:
    """Every port of every device."""
    return [
        Port(
            device=device,
            port=number,
            state=after_colon(_read(where / "state")),
            physical_state=after_colon(_read(where / "phys_state")),
            link_layer=_read(where / "link_layer"),
            rate_bps=rate_bps(_read(where / "rate")),
            netdev=_port_netdev(where),
        )
        for device, number, where in _port_folders(root)
    ]


def gids(root: Path = SYSFS) -> list[Gid]:
    """Every entry in use of every port's GID table."""
    return [found for device, port, _ in _port_folders(root) for found in port_gids(device, port, root)]


def port_gids(device: str, port: int, root: Path = SYSFS) -> Iterator[Gid]:
    """Every entry in use of one port's GID table, in order; read as it is asked for, since a table may be long."""
    for path in _by_number(root / device / "ports" / str(port) / "gids"):
        found = gid(device, port, int(path.name), root)
        if found is not None:
            yield found


def gid(device: str, port: int, index: int, root: Path = SYSFS) -> Gid | None:
    """One entry of a port's GID table; None where it is not in use."""
    where = root / device / "ports" / str(port)
    text = _read(where / "gids" / str(index))
    if not is_gid(text):
        return None
    kind = _read(where / "gid_attrs" / "types" / str(index)) or "IB"
    return Gid(device, port, index, gid_text(text), kind, _gid_netdev(where, str(index)))


def port_lids(device: str, port: int, root: Path = SYSFS) -> tuple[int, int] | None:
    """The first LID of a port and its LMC; None where it has no LID, as on Ethernet or without a subnet manager."""
    where = root / device / "ports" / str(port)
    try:
        lid, lmc = int(_read(where / "lid"), 16), int(_read(where / "lid_mask_count"))
    except ValueError:
        return None
    return (lid, lmc) if 0 < lid <= LID_MAX and 0 <= lmc <= LMC_MAX else None


def link_layer(device: str, port: int, root: Path = SYSFS) -> str:
    """Of a port, "InfiniBand" or "Ethernet"; empty where there is none."""
    return _read(root / device / "ports" / str(port) / "link_layer")


def pkeys(device: str, port: int, root: Path = SYSFS) -> dict[int, int]:
    """The entries in use of a port's P_Key table, by index (IBTA volume 1, 10.9.2)."""
    found = {}
    for path in _by_number(root / device / "ports" / str(port) / "pkeys"):
        with suppress(ValueError):
            found[int(path.name)] = int(_read(path), 16)
    return {index: pkey for index, pkey in found.items() if pkey & 0x7FFF}


def incarnation(device: str, root: Path = SYSFS) -> int | None:
    """A number that is another one when a device has gone and come back; None where it is not there."""
    try:
        return (root / device).stat().st_ino
    except OSError:
        return None


def counters(root: Path = SYSFS) -> list[Counter]:
    """Every counter of every port; those that a driver cannot read now are left out."""
    return [
        Counter(device, number, group, path.name, int(text))
        for device, number, where in _port_folders(root)
        for group in COUNTER_GROUPS
        for path in sorted((where / group).glob("*"))
        if path.name not in NO_COUNTERS and (text := _read(path)).isdigit()
    ]


def _device_folders(root: Path) -> list[Path]:
    return sorted(root.glob("*"))


def _port_folders(root: Path) -> Iterator[tuple[str, int, Path]]:
    for device in _device_folders(root):
        for where in _by_number(device / "ports"):
            yield device.name, int(where.name), where


def _by_number(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name))


def _read(path: Path) -> str:
    """A file's text; empty where it is not there, or where the kernel answers EINVAL for an empty entry."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def after_colon(text: str) -> str:
    """The name in "4: ACTIVE"."""
    return text.rpartition(": ")[2]


def rate_bps(text: str) -> int | None:
    """The rate in "100 Gb/sec (4X EDR)"."""
    found = RATE.match(text)
    return round(float(found[1]) * 1e9) if found else None


def is_gid(text: str) -> bool:
    """Whether an entry is in use: one that is not holds all zeros, or on InfiniBand the subnet prefix alone."""
    return bool(text) and any(gid_bytes(text)[8:])


def _gid_netdev(port: Path, index: str) -> str | None:
    return _read(port / "gid_attrs" / "ndevs" / index) or None


def _port_netdev(port: Path) -> str | None:
    """The network interface of a port: that of its first GID which names one."""
    names = (_gid_netdev(port, path.name) for path in _by_number(port / "gid_attrs" / "ndevs"))
    return next((name for name in names if name), None)
