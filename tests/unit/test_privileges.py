"""What the dataplane asks of its caller, capability by capability."""

import pytest

from cwdp.dataplane import tree
from cwdp.errors import PrivilegeError

NET_ADMIN, NET_RAW, SYS_ADMIN, PERFMON, BPF = (1 << bit for bit in (12, 13, 21, 38, 39))


@pytest.mark.parametrize(
    "held",
    [NET_ADMIN | PERFMON | BPF, NET_ADMIN | SYS_ADMIN, NET_ADMIN | NET_RAW | PERFMON | BPF, (1 << 41) - 1],
)
def test_enough(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_effective_capabilities", lambda: held)
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
    monkeypatch.setattr(tree, "_effective_capabilities", lambda: held)
    with pytest.raises(PrivilegeError, match=f"^this needs {missing}\n"):
        tree.require_privileges()


def test_the_real_capabilities_can_be_read() -> None:
    assert tree._effective_capabilities() >= 0
