"""NVIDIA's GPUs by NVML, where `nvidia-ml-py` is installed; the names of functions are those of the NVML API reference."""

from collections.abc import Callable
from functools import partial
from typing import Any

from cwdp.audit.answers import Gpu, Gpus
from cwdp.audit.unreadable import Unreadable

MOST_GPUS = 64
UNCORRECTED, LIFE_LONG = 1, 1
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC."""

LINK_ERRORS = (0, 1, 2)
"""NVML_NVLINK_ERROR_DL_REPLAY, _RECOVERY, _CRC_FLIT."""

SIMPLE = {
    "product": "nvmlDeviceGetName",
    "uuid": "nvmlDeviceGetUUID",
    "vbios": "nvmlDeviceGetVbiosVersion",
    "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_generation_max": "nvmlDeviceGetMaxPcieLinkGeneration",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
    "pcie_width_max": "nvmlDeviceGetMaxPcieLinkWidth",
    "persistence": "nvmlDeviceGetPersistenceMode",
    "throttled": "nvmlDeviceGetCurrentClocksThrottleReasons",
    "power_limit_mw": "nvmlDeviceGetEnforcedPowerLimit",
}
"""Values that one call tells, and their calls."""


def gpus() -> Gpus:
    """All GPUs that NVML has.

    Raises:
        Unreadable: NVML or its Python module is not there.
    """
    try:
        import pynvml  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise Unreadable("nvidia-ml-py is not installed") from error
    return read(pynvml)


def read(nvml: Any) -> Gpus:
    """The same by a given NVML."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise Unreadable(f"NVML: {error}") from error
    try:
        count = min(nvml.nvmlDeviceGetCount(), MOST_GPUS)
        return Gpus(_text(nvml.nvmlSystemGetDriverVersion()), [_gpu(nvml, index) for index in range(count)])
    except nvml.NVMLError as error:
        raise Unreadable(f"NVML: {error}") from error
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    values: dict[str, int | str | list[int]] = {}
    problems: dict[str, str] = {}
    for name, ask in _questions(nvml, device).items():
        try:
            values[name] = ask()
        except (nvml.NVMLError, AttributeError) as error:
            problems[name] = f"NVML: {error}"
    address = _text(nvml.nvmlDeviceGetPciInfo(device).busId)
    return Gpu(index=index, pci_address=address.lower()[-12:], values=values, problems=problems)


def _questions(nvml: Any, device: Any) -> dict[str, Callable[[], int | str | list[int]]]:
    """What is asked of a GPU, by name. `rows` are: corrected, uncorrected, pending, failed."""
    simple: dict[str, Callable[[], int | str | list[int]]] = {
        name: partial(_asked, nvml, device, call) for name, call in SIMPLE.items()
    }
    return simple | {
        "ecc": lambda: int(nvml.nvmlDeviceGetEccMode(device)[0]),
        "ecc_uncorrected": lambda: int(nvml.nvmlDeviceGetTotalEccErrors(device, UNCORRECTED, LIFE_LONG)),
        "rows": lambda: [int(one) for one in nvml.nvmlDeviceGetRemappedRows(device)],
        "nvlinks": lambda: _links(nvml, device),
        "nvlink_errors": lambda: _link_errors(nvml, device),
    }


def _links(nvml: Any, device: Any) -> list[int]:
    """The state of each NVLink that the GPU has: 1 for active."""
    states = []
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            states.append(int(nvml.nvmlDeviceGetNvLinkState(device, link)))
        except nvml.NVMLError:
            break
    return states


def _link_errors(nvml: Any, device: Any) -> list[int]:
    """The errors of each active NVLink, of all kinds."""
    return [
        sum(int(nvml.nvmlDeviceGetNvLinkErrorCounter(device, link, kind)) for kind in LINK_ERRORS)
        for link, state in enumerate(_links(nvml, device))
        if state
    ]


def _asked(nvml: Any, device: Any, call: str) -> int | str:
    return _plain(getattr(nvml, call)(device))


def _plain(value: Any) -> int | str:
    return value if isinstance(value, int) else _text(value)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
