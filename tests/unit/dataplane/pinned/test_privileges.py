"""What the dataplane asks of its caller, capability by capability."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest

from cwdp.dataplane.pinned import tree
from cwdp.errors import PrivilegeError

NET_ADMIN, NET_RAW, SYS_ADMIN, PERFMON, BPF = (1 << bit for bit in (12, 13, 21, 38, 39))


@pytest.mark.parametrize(
    "held",
    [NET_ADMIN | PERFMON | BPF, NET_ADMIN | SYS_ADMIN, NET_ADMIN | NET_RAW | PERFMON | BPF, (1 << 41) - 1],
)
def test_enough(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "effective_capabilities", lambda: held)
    tree.require_privileges()


@pytest.mark.parametrize(
    ("held", "missing"),
    [
        (0, "CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF"),
        (SYS_ADMIN, "CAP_NET_ADMIN"),
        (NET_ADMIN | BPF, "CAP_PERFMON"),
        (NET_ADMIN | PERFMON, "CAP_BPF"),
    ],
)
def test_what_is_missing_is_named(held: int, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "effective_capabilities", lambda: held)
    with pytest.raises(PrivilegeError, match=f"^this needs {missing}\n"):
        tree.require_privileges()


class _Header(ctypes.Structure):
    """A struct __user_cap_header_struct (capget(2)); this thread's."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    """Two struct __user_cap_data_struct: the low halves of the three sets, then the high ones."""

    _fields_ = (("half", ctypes.c_uint32 * 3 * 2),)


LINUX_CAPABILITY_VERSION_3 = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


def of_this_thread() -> _Sets:
    sets = _Sets()
    assert _libc.capget(ctypes.byref(_Header(LINUX_CAPABILITY_VERSION_3, 0)), ctypes.byref(sets)) == 0
    return sets


def effective(sets: _Sets) -> int:
    low, high = sets.half
    return int(low[0] | high[0] << 32)


def drop(capabilities: int) -> None:
    """Give up effective capabilities, of this thread alone."""
    sets = of_this_thread()
    for half, mask in zip(sets.half, (capabilities & 0xFFFFFFFF, capabilities >> 32), strict=True):
        half[0] &= ~mask
    assert _libc.capset(ctypes.byref(_Header(LINUX_CAPABILITY_VERSION_3, 0)), ctypes.byref(sets)) == 0


def test_the_capabilities_are_those_that_the_kernel_tells() -> None:
    assert tree.effective_capabilities() == effective(of_this_thread())


def test_each_thread_has_its_own() -> None:
    """As the agent's threads that change maps do."""
    before = effective(of_this_thread())

    def without(capabilities: int) -> int:
        drop(capabilities)
        return tree.effective_capabilities()

    for capabilities in (NET_ADMIN, BPF | PERFMON, before):
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(without, capabilities).result() == before & ~capabilities
    assert tree.effective_capabilities() == before


def test_a_thread_without_capabilities_is_refused() -> None:
    def refused() -> str:
        drop(effective(of_this_thread()))
        with pytest.raises(PrivilegeError) as caught:
            tree.require_privileges()
        return caught.value.message

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(refused).result() == "this needs CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF"
