"""What the hooks of an interface run, held against what its tree has pinned for them."""

import socket
from pathlib import Path

import numpy as np

from cwdp.dataplane import abi
from cwdp.dataplane.abi import XdpMode
from cwdp.dataplane.kernel import libbpf
from cwdp.dataplane.kernel.libbpf import opened
from cwdp.dataplane.loading import hooks
from cwdp.dataplane.loading.hooks import Hook
from cwdp.dataplane.pinned import meta, tree
from cwdp.dataplane.pinned.tree import TreePath

GONE = "the interface is gone, or in another namespace"


def interface_of(where: TreePath) -> int:
    """The index of the interface that a tree is of; 0 where that is gone.

    Its links know. Where somebody has detached all of them, what was noted when it was loaded tells.
    """
    for hook in hooks.HOOKS:
        if ifindex := _target(where.path / hook.link)[0]:
            return ifindex
    noted = _noted_interface(where)
    return noted if noted and _is_here(where) and _name(noted) else 0


def name_now(where: TreePath) -> str | None:
    """What the interface of a tree of this namespace is called; None where it is gone."""
    ifindex = interface_of(where)
    return _name(ifindex) if ifindex else None


def faults(where: TreePath) -> list[str]:
    """What is not as it should be, for people; nothing where all is well.

    Of a tree of another namespace only its links can be seen.

    Raises:
        OSError: the tree is not whole.
    """
    ifindex = interface_of(where)
    name = _name(ifindex) if _is_here(where) else where.ifname
    if not ifindex or name is None:
        return [GONE]
    found = [f"the interface is called {name} now"] if name != where.ifname else []
    return found + [fault for hook in _wanted(where) if (fault := _fault(where, where.path, ifindex, hook))]


def put_right(where: TreePath, programs: Path, ifindex: int) -> tuple[str, ...]:
    """Have every hook run the program pinned for it in a directory; what does so already is left alone.

    Returns:
        What was not so.

    Raises:
        DataplaneError: a hook takes no program, or has somebody else's.
        OSError: the tree is not whole.
    """
    return tuple(
        fault for hook in _wanted(where) if (fault := _put_right(where, programs, ifindex, hook)) is not None
    )


def is_attached(where: TreePath, hook: Hook) -> bool:
    """Whether we have a program at a hook, as far as can be seen from this namespace."""
    if not _is_here(where) and not (where.path / hook.link).exists():
        return True  # clsact has it
    return runs(where, interface_of(where), hook) is not None


def runs(where: TreePath, ifindex: int, hook: Hook) -> int | None:
    """The kernel's number of the program that we have at a hook; None where there is none."""
    target, program = _target(where.path / hook.link)
    if target == ifindex:
        return program
    return hooks.clsact_program(ifindex, hook) if hook.parent and _is_here(where) else None


def _put_right(where: TreePath, programs: Path, ifindex: int, hook: Hook) -> str | None:
    fault = _fault(where, programs, ifindex, hook)
    if fault is None:
        return None
    pin = where.path / hook.link
    with opened(programs / hook.program) as program_fd:
        if runs(where, ifindex, hook) is None:
            pin.unlink(missing_ok=True)
            _attach(where, program_fd, ifindex, hook)
        elif pin.exists():
            with opened(pin) as link:
                libbpf.link_update(link, program_fd)
        else:
            hooks.attach_clsact(program_fd, ifindex, hook)
    return fault


def _attach(where: TreePath, program_fd: int, ifindex: int, hook: Hook) -> None:
    if hook.parent:
        hooks.attach_tc(program_fd, ifindex, where.path, hook)
        return
    record = meta.read(where.path)
    was_generic = record["xdp_mode"][0] == XdpMode.GENERIC
    record["xdp_mode"], _ = hooks.attach_xdp(
        program_fd, ifindex, where.ifname, where.path / hook.link, generic=was_generic
    )
    meta.write(where.path, record)


def _fault(where: TreePath, programs: Path, ifindex: int, hook: Hook) -> str | None:
    if not is_attached(where, hook):
        return f"{hook.program} is not attached"
    found = runs(where, ifindex, hook)
    with opened(programs / hook.program) as program:
        if found in (None, libbpf.program_id(program)):
            return None
    return f"{hook.program} is not the program of this build"


def _wanted(where: TreePath) -> list[Hook]:
    """The hooks that are used: that at tc ingress only where a partner NIC stands in for it."""
    always = [hooks.XDP, hooks.EGRESS]
    with opened(where.path / "control") as fd:
        control = np.frombuffer(libbpf.map_lookup(fd, 0, abi.CONTROL.itemsize), dtype=abi.CONTROL)[0]
    stands_in = control["partner"]["ifindex"] != 0 or (where.path / hooks.INGRESS.link).exists()
    return [*always, hooks.INGRESS] if stands_in else always


def _target(pin: Path) -> tuple[int, int]:
    """The interface's index and the program's number of a pinned link; zeros where it is not there or detached."""
    try:
        with opened(pin) as link:
            return libbpf.link_target(link)
    except OSError:
        return 0, 0


def _noted_interface(where: TreePath) -> int:
    try:
        record = meta.read(where.path)[0]
    except OSError:
        return 0
    return int(record["ifindex"]) if meta.upgradable(record) else 0


def _name(ifindex: int) -> str | None:
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return None


def _is_here(where: TreePath) -> bool:
    return where.netns_cookie == tree.netns_cookie()
