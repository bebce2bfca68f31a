"""GPUs by NVML (the NVML API reference), and what sysfs has of others."""

from collections.abc import Iterator
from functools import partial
from typing import TypeVar

from cwdp.audit.answers import Gpu, Gpus
from cwdp.audit.areas import pcie
from cwdp.audit.notes import Notes, whole
from cwdp.audit.source import Source
from cwdp.audit.subjects import PCI, Found, GpuDevice
from cwdp.audit.unreadable import Unreadable

T = TypeVar("T")
GTPS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""By generation of PCI Express."""

THROTTLES = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
"""nvmlClocksThrottleReasons; 1 is idleness."""

PENDING, FAILED = 2, 3
"""Places in nvmlDeviceGetRemappedRows: rows for corrected and uncorrected errors, pending, failed."""

TEXTS = {"product": "product", "uuid": "uuid", "vbios": "vbios"}
BY_SYSFS = {"product": "product_name", "uuid": "unique_id", "vbios": "vbios_version"}
"""Files of amdgpu (Documentation/gpu/amdgpu/driver-misc.rst)."""

BY_NVML_ONLY = (
    "persistence",
    "has_ecc",
    "ecc_uncorrected",
    "rows_pending",
    "rows_failed",
    "nvlinks",
    "nvlinks_max",
    "nvlink_errors",
    "throttled_by",
    "power_limit_w",
)
AMD = "0x1002"


def read(source: Source, found: Found) -> Iterator[Notes]:
    """Facts of the area `gpus`."""
    try:
        known = {gpu.index: gpu for gpu in source.ask(Gpus).gpus}
        reason = "NVML does not have it"
    except Unreadable as error:
        known, reason = {}, error.message
    for gpu in found.gpus:
        notes = Notes("gpu", gpu.name)
        notes.note("pci_address", partial(str, gpu.pci))
        told = None if gpu.nvml is None else known.get(gpu.nvml)
        if told is None:
            _note_by_sysfs(notes, source, gpu, reason)
        else:
            _note_by_nvml(notes, source, told)
        yield notes


def _note_by_sysfs(notes: Notes, source: Source, gpu: GpuDevice, reason: str) -> None:
    folder = f"{PCI}/{gpu.pci}"
    pcie.note_link(notes, source, gpu.pci)
    is_amd = source.exists(f"{folder}/vendor") and source.text(f"{folder}/vendor") == AMD
    if is_amd:
        for fact, name in BY_SYSFS.items():
            notes.note(fact, partial(source.text, f"{folder}/{name}"))
        notes.lack([fact for fact in BY_NVML_ONLY if "nvlink" not in fact], "not read of AMD's GPUs")
    else:
        notes.lack((*BY_SYSFS, *BY_NVML_ONLY), reason)


def _note_by_nvml(notes: Notes, source: Source, told: Gpu) -> None:
    for fact, name in TEXTS.items():
        notes.note(fact, partial(_told, told, name, str))
    notes.note("pcie_gtps", lambda: _gtps(_number(told, "pcie_generation")))
    notes.note("pcie_gtps_max", lambda: _gtps(_number(told, "pcie_generation_max")))
    notes.note("pcie_width", lambda: _number(told, "pcie_width"))
    notes.note("pcie_width_max", lambda: _number(told, "pcie_width_max"))
    notes.note("numa_node", lambda: whole(source.text(f"{PCI}/{told.pci_address}/numa_node")))
    notes.note("persistence", lambda: _number(told, "persistence") != 0)
    notes.note("has_ecc", lambda: _number(told, "ecc") != 0)
    notes.note("ecc_uncorrected", lambda: _number(told, "ecc_uncorrected"))
    notes.note("rows_pending", lambda: _row(told, PENDING))
    notes.note("rows_failed", lambda: _row(told, FAILED))
    notes.note("throttled_by", lambda: _throttles(_number(told, "throttled")))
    notes.note("power_limit_w", lambda: _number(told, "power_limit_mw") / 1000)
    _note_nvlinks(notes, told)


def _note_nvlinks(notes: Notes, told: Gpu) -> None:
    """NVLinks; of a GPU that has none their errors do not apply."""
    notes.note("nvlinks", lambda: sum(one != 0 for one in _numbers(told, "nvlinks")))
    notes.note("nvlinks_max", lambda: len(_numbers(told, "nvlinks")))
    if notes.facts.get("nvlinks_max") != 0:
        notes.note("nvlink_errors", lambda: sum(_numbers(told, "nvlink_errors")))


def _told(told: Gpu, name: str, kind: type[T]) -> T:
    value = told.values.get(name)
    if not isinstance(value, kind):
        raise Unreadable(told.problems.get(name, "NVML does not tell"))
    return value


def _number(told: Gpu, name: str) -> int:
    return _told(told, name, int)


def _numbers(told: Gpu, name: str) -> list[int]:
    return [one for one in _told(told, name, list) if isinstance(one, int)]


def _gtps(generation: int) -> float:
    if generation not in GTPS:
        raise Unreadable(f"a generation of PCI Express that is not known: {generation}")
    return GTPS[generation]


def _row(told: Gpu, at: int) -> bool:
    rows = _numbers(told, "rows")
    if len(rows) <= at:
        raise Unreadable("NVML does not tell")
    return rows[at] != 0


def _throttles(bits: int) -> list[str]:
    return sorted(name for bit, name in THROTTLES.items() if bits & bit)
