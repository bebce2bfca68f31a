"""The kernel, the distribution, the machine and its firmware."""

import re
import shlex
from collections.abc import Iterator
from datetime import datetime

from cwdp.audit.answers import Uname
from cwdp.audit.notes import Notes, clipped, shown, table
from cwdp.audit.source import Source
from cwdp.audit.subjects import Found
from cwdp.audit.unreadable import Unreadable

DMI, GROUPS = "sys/class/dmi/id", "sys/kernel/iommu_groups"
UNSAID = {"", "To Be Filled By O.E.M.", "Default string", "Not Specified", "System Product Name"}
"""What firmware says where nobody has filled in a text."""

OFF = re.compile(r"(iommu|intel_iommu|amd_iommu)=off")


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `system`."""
    del found
    notes = Notes("host")
    notes.note("kernel_release", lambda: source.ask(Uname).release)
    notes.note("architecture", lambda: source.ask(Uname).machine)
    notes.note("os", lambda: _os(source))
    notes.note("command_line", lambda: sorted(_command_line(source)))
    notes.note("iommu", lambda: _iommu(source))
    notes.note("product", lambda: f"{_dmi(source, 'sys_vendor')} {_dmi(source, 'product_name')}")
    notes.note("bios_version", lambda: _dmi(source, "bios_version"))
    notes.note("bios_date", lambda: _date(_dmi(source, "bios_date")))
    yield notes


def _os(source: Source) -> str:
    """By os-release(5), of which the second place is that of distributions."""
    path = "etc/os-release" if source.exists("etc/os-release") else "usr/lib/os-release"
    told = table(source.text(path), "=")
    name, version = (told.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID"))
    if not name:
        raise Unreadable("os-release has no ID")
    return f"{name} {version}".strip()


def _command_line(source: Source) -> list[str]:
    text = source.text("proc/cmdline")
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _iommu(source: Source) -> str:
    """By the type of its groups' domains (Documentation/ABI/testing/sysfs-kernel-iommu_groups)."""
    parameters = _command_line(source)
    groups = source.names(GROUPS) if source.exists(GROUPS) else []
    if not groups or any(OFF.fullmatch(one) for one in parameters):
        return "off"
    types = set()
    for group in groups:
        try:
            types.add(source.text(f"{GROUPS}/{group}/type"))
        except Unreadable:
            return "pt" if "iommu=pt" in parameters else "translating"
    return "pt" if types == {"identity"} else "translating"


def _dmi(source: Source, name: str) -> str:
    if not source.exists(DMI):
        raise Unreadable("the firmware has no DMI")
    text = source.text(f"{DMI}/{name}")
    if text in UNSAID:
        raise Unreadable("the firmware does not tell")
    return clipped(text)


def _date(text: str) -> str:
    """DMI has MM/DD/YYYY (SMBIOS specification, 7.1)."""
    try:
        return datetime.strptime(text, "%m/%d/%Y").date().isoformat()  # noqa: DTZ007 - a day, of no zone
    except ValueError as error:
        raise Unreadable(f"not a date: '{shown(text)}'") from error
