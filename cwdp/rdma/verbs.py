"""pyverbs, loaded when it is needed: what is missing without it is said, all else works."""

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from cwdp.errors import RdmaError

MTU_BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}
"""enum ibv_mtu; IBTA 9.4.3."""


class VerbsMissingError(RdmaError):
    """pyverbs is not installed, or not for this Python."""


@dataclass(frozen=True)
class DeviceLimits:
    """What verbs know of a device, and the kernel's files do not; `active_mtu_bytes` by port, where it has one."""

    max_queue_pairs: int
    active_mtu_bytes: dict[int, int]


def load(module: str) -> ModuleType:
    """A module of pyverbs, such as "device".

    Raises:
        VerbsMissingError: it is not there.
    """
    try:
        return importlib.import_module(f"pyverbs.{module}")
    except ImportError as error:
        raise VerbsMissingError(
            f"pyverbs is missing: {error}",
            "install Debian's python3-pyverbs; the virtual environment must be made with --system-site-packages",
        ) from error


def enums() -> ModuleType:
    """The enumerations of verbs: `enums` up to rdma-core 44, `libibverbs_enums` later.

    Raises:
        VerbsMissingError: they are not there.
    """
    try:
        return load("enums")
    except VerbsMissingError:
        return load("libibverbs_enums")


def open_device(name: str) -> Any:
    """A pyverbs Context.

    Raises:
        RdmaError: pyverbs is missing, or the device cannot be opened.
    """
    failed = failure()
    try:
        return load("device").Context(name=name)
    except failed as error:
        raise RdmaError(
            f"the RDMA device {name} cannot be opened: {reason(error)}",
            "`cwdp rdma device` lists the devices; /dev/infiniband/uverbs* must be readable and writable",
        ) from error


def failure() -> type[Exception]:
    """What pyverbs raises.

    Raises:
        VerbsMissingError: it is not there.
    """
    found: type[Exception] = load("pyverbs_error").PyverbsError
    return found


def reason(error: Exception) -> str:
    """The first line of what pyverbs says, without its full stop."""
    return str(error).splitlines()[0].rstrip(".")


def limits(name: str, ports: list[int]) -> DeviceLimits:
    """Ask a device for its limits.

    Raises:
        RdmaError: pyverbs is missing, or the device cannot be opened or asked.
    """
    failed = failure()
    with open_device(name) as context:
        try:
            active = {port: context.query_port(port).active_mtu for port in ports}
            mtus = {port: MTU_BYTES[mtu] for port, mtu in active.items() if mtu in MTU_BYTES}
            return DeviceLimits(context.query_device().max_qp, mtus)
        except failed as error:
            raise RdmaError(f"the RDMA device {name} does not answer: {reason(error)}") from error
