"""Load, pin, attach, swap: each as a whole or not at all.

A tree is made in a temporary directory under a lock and then renamed, so a crash leaves either the old state
or the new one. An upgrade gives the new programs the old maps and swaps each behind its link: no packet sees
the interface without a program, and no counter or probe under way is lost.
"""

import ctypes
import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from cwdp.dataplane import abi, icrc
from cwdp.dataplane.abi import Direction, XdpMode
from cwdp.dataplane.kernel import interface, libbpf
from cwdp.dataplane.kernel.interface import Generic
from cwdp.dataplane.kernel.libbpf import opened
from cwdp.dataplane.loading import attached, hooks
from cwdp.dataplane.pinned import control, meta, tree
from cwdp.dataplane.pinned.maps import Maps, shared
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.errors import DataplaneError, KernelError, VersionError
from cwdp.shared.testclock import TestClock

COUNTERS = "counters"
KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
_PACKAGED = Path(__file__).with_name("cwdp.bpf.o")
_BUILT = Path(__file__).resolve().parents[3] / "build" / "bpf" / _PACKAGED.name

OBJECT = _PACKAGED if _PACKAGED.exists() else _BUILT
"""The one that was installed with this module; a checkout has none there, and takes what it has built."""


@dataclass(frozen=True)
class Settings:
    """What is fixed when the dataplane is loaded.

    Attributes:
        probe_port: UDP destination port of probes.
        qp_buckets: places for queue pairs of each direction, in buckets of 8; a power of two.
        test_clock: a clock of its own, for a host of a lab.
        generic: whether generic XDP will do where the driver takes no program.
    """

    probe_port: int = abi.ROCE_PORT
    qp_buckets: int = abi.QP_BUCKETS
    test_clock: TestClock | None = None
    generic: Generic = "refuse"

    def __post_init__(self) -> None:
        if self.qp_buckets <= 0 or self.qp_buckets & (self.qp_buckets - 1):
            raise ValueError("qp_buckets must be a power of two")

    def to_bytes(self) -> bytes:
        """The `.rodata` of the object."""
        record = np.zeros((), dtype=abi.SETTINGS)
        record["probe_port"] = self.probe_port
        record["qp_buckets"] = self.qp_buckets
        record["icrc_powers"] = icrc.icrc_powers()
        if self.test_clock:
            record["test_clock_base_ns"] = self.test_clock.base_ns
            record["test_clock_offset_ns"] = self.test_clock.offset_ns
            record["test_clock_cycle_q16"] = self.test_clock.clock.cycle_q16
            record["test_clock_steps_log2"] = self.test_clock.clock.steps_log2
        return record.tobytes()


@dataclass(frozen=True)
class Loaded:
    """One interface's dataplane as found.

    Attributes:
        changed: the call made it so.
        repaired: what of a dataplane that was there already was not as it should be.
        why_generic: why the driver takes no program, as it was said when it was loaded.
    """

    where: TreePath
    mode: XdpMode
    tag: str
    changed: bool = field(default=False, compare=False)
    repaired: tuple[str, ...] = field(default=(), compare=False)
    why_generic: str = field(default="", compare=False)


def object_tag() -> str:
    """What tells builds apart: the start of the SHA-256 of the object file.

    Raises:
        DataplaneError: it has not been built.
    """
    try:
        return hashlib.sha256(OBJECT.read_bytes()).hexdigest()[:16]
    except FileNotFoundError as error:
        raise DataplaneError(
            f"the dataplane has not been built: {OBJECT} is missing", "run `make setup`"
        ) from error


def load(ifname: str, settings: Settings | None = None) -> Loaded:
    """Have the dataplane on an interface; one that is there already, from the same build, stays as it is.

    What somebody has taken off its hooks, or swapped there, is put right.

    Raises:
        VersionError: another build's dataplane is there; `upgrade` replaces it.
        DataplaneError: it was loaded with settings other than those given, or it could not be loaded, pinned or
            attached; nothing has changed.
    """
    with tree.locked():
        ifindex, tag = interface.ifindex_of(ifname), object_tag()
        where, old = _living(ifname, ifindex)
        if old is None:
            return _create(where, ifindex, settings or Settings(), tag)
        if old.tag != tag:
            raise VersionError(
                f"{ifname} has the dataplane of another build ({old.tag}, this one is {tag})",
                f"replace it without losing a packet: cwdp dataplane upgrade {ifname}",
            )
        if settings is not None:
            _require_settings(where, ifindex, old, settings)
        return _put_right(where, ifindex, old)


def upgrade(ifname: str) -> Loaded:
    """Replace another build's programs by this one's, keeping its maps and settings.

    Raises:
        DataplaneError: there is nothing to upgrade, or the new programs were refused; the old ones stay.
    """
    with tree.locked():
        ifindex, tag = interface.ifindex_of(ifname), object_tag()
        where, old = _living(ifname, ifindex)
        if old is None:
            raise DataplaneError(
                f"{ifname} has no dataplane to upgrade", f"run: cwdp dataplane load {ifname}"
            )
        old = _put_right(where, ifindex, old)
        return old if old.tag == tag else _swap(where, ifindex, old, tag)


def unload(ifname: str) -> bool:
    """Take the dataplane off an interface; False where there was none.

    One that was renamed goes by its old name too, and one that is gone leaves nothing behind.
    """
    with tree.locked():
        renamed = _follow_names()
        for name in (ifname, renamed.get(ifname, ifname)):
            where = tree.here(name)
            if where.path.exists():
                _remove(where)
                return True
        return False


def take_in(where: TreePath) -> None:
    """Have an interface give on what comes to it in place of this host's other NIC; it may do so already.

    Callers hold `tree.locked()`.

    Raises:
        OSError: the program is not pinned.
        DataplaneError: it cannot be attached.
    """
    ifindex = attached.interface_of(where)
    if attached.runs(where, ifindex, hooks.INGRESS) is not None:
        return
    with opened(where.path / hooks.INGRESS.program) as program_fd:
        (where.path / hooks.INGRESS.link).unlink(missing_ok=True)
        hooks.attach_tc(program_fd, ifindex, where.path, hooks.INGRESS)


def inspect(where: TreePath, *, to_upgrade: bool = False) -> Loaded:
    """What a tree says of itself.

    Args:
        where: the tree.
        to_upgrade: the layout before will do.

    Raises:
        VersionError: the tree is of another layout than this build can read.
        DataplaneError: it is not whole.
    """
    try:
        record = meta.read(where.path)[0]
    except OSError as error:
        raise _not_whole(where, error) from error
    if record["abi"] != abi.ABI and not (to_upgrade and meta.upgradable(record)):
        raise VersionError(
            f"{where.path} has layout {record['abi']}, this build reads {abi.ABI}", _reload_hint(where.ifname)
        )
    return Loaded(where, XdpMode(int(record["xdp_mode"])), bytes(record["tag"]).decode())


def _not_whole(where: TreePath, error: OSError) -> DataplaneError:
    return DataplaneError(f"{where.path} is not whole: {error.strerror}", _reload_hint(where.ifname))


def _reload_hint(ifname: str) -> str:
    return f"run: cwdp dataplane unload {ifname}; cwdp dataplane load {ifname}"


def _settings(where: TreePath) -> bytes:
    """What a tree was loaded with."""
    with opened(where.path / tree.SETTINGS_MAP) as fd:
        if libbpf.map_value_bytes(fd) != abi.SETTINGS.itemsize:
            raise VersionError(
                f"{where.path} was loaded with settings that this build does not know",
                _reload_hint(where.ifname),
            )
        return libbpf.map_lookup(fd, 0, abi.SETTINGS.itemsize)


def _require_settings(where: TreePath, ifindex: int, old: Loaded, settings: Settings) -> None:
    if _settings(where) != settings.to_bytes():
        raise DataplaneError(
            f"{where.ifname} has a dataplane that was loaded with other settings", _reload_hint(where.ifname)
        )
    if old.mode is XdpMode.GENERIC and not _generic_will_do(ifindex, settings):
        raise DataplaneError(
            f"{where.ifname} has a dataplane in generic XDP, which is refused",
            f"{_reload_hint(where.ifname)}, {interface.ALLOW}",
        )


def _generic_will_do(ifindex: int, settings: Settings) -> bool:
    return settings.generic == "allow" or interface.may_be_generic(ifindex)


def _living(ifname: str, ifindex: int) -> tuple[TreePath, Loaded | None]:
    """Where the tree of an interface is to be, and the tree if there is one; one of another is cleared away."""
    _follow_names()
    where = tree.here(ifname)
    if not where.path.exists():
        return where, None
    if attached.interface_of(where) == ifindex:
        return where, inspect(where, to_upgrade=True)
    _remove(where)
    return where, None


def _follow_names() -> dict[str, str]:
    """Have each tree of this namespace bear the name that its interface has now.

    Names may go round. Each step puts one tree in its place.

    Returns:
        The new names of those that had others.
    """
    renamed = {}
    for where in tree.trees_here():
        called = where.ifname
        while (name := attached.name_now(where)) not in (None, where.ifname):
            place = tree.here(str(name))
            if place.path.exists() and attached.name_now(place) is None:
                tree.remove(place)
            _take_place(where.path, place.path)
            renamed[called], called = place.ifname, place.ifname
    return renamed


def _put_right(where: TreePath, ifindex: int, old: Loaded) -> Loaded:
    try:
        repaired = (*attached.put_right(where, where.path, ifindex), *_leave_tags_on(where))
    except OSError as error:
        raise _not_whole(where, error) from error
    return replace(inspect(where, to_upgrade=True), changed=True, repaired=repaired) if repaired else old


def _leave_tags_on(where: TreePath) -> tuple[str, ...]:
    switched_off = interface.leave_tags_on(where.ifname)
    if not switched_off:
        return ()
    record = meta.read(where.path)
    record["offloads"] |= switched_off
    meta.write(where.path, record)
    return ("VLAN tags were taken off by the NIC",)


def _remove(where: TreePath) -> None:
    ifindex, name = attached.interface_of(where), attached.name_now(where)
    if ifindex and not (where.path / hooks.EGRESS.link).exists():
        hooks.detach_clsact(ifindex)
    with suppress(OSError):  # of a tree that is not whole nothing is known
        record = meta.read(where.path)[0]
        if name and meta.upgradable(record):
            interface.give_back(name, int(record["offloads"]))
    tree.remove(where)


@contextmanager
def _temporary(where: TreePath) -> Iterator[Path]:
    """A directory that takes the tree's place at the end, or vanishes with all that was pinned in it."""
    new = where.temporary
    try:
        new.mkdir(parents=True, mode=0o750)
        yield new
        _take_place(new, where.path)
    except OSError as error:
        raise DataplaneError(
            f"cannot pin below {where.path}: {error.strerror}", "look for what fills it: ls -R /sys/fs/bpf"
        ) from error
    finally:
        tree.discard(new)
        tree.remove_if_empty(where.directory)


def _take_place(new: Path, old: Path) -> None:
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    exchange = 2 if old.exists() else 0
    at_cwd = -100
    if renameat2(at_cwd, os.fsencode(new), at_cwd, os.fsencode(old), exchange) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _open_and_load(settings: bytes, reused: Path | None) -> libbpf.BpfObject:
    try:
        obj = libbpf.BpfObject(OBJECT)
    except OSError as error:
        raise DataplaneError(f"{OBJECT} is no BPF object: {error.strerror}", "run `make setup`") from error
    obj.set_initial_value(".rodata", settings)
    record = np.frombuffer(settings, dtype=abi.SETTINGS)[0]
    for name in tree.QP_MAPS:
        obj.set_max_entries(name, int(record["qp_buckets"]))
    obj.set_max_entries(tree.BURST_STARTS, len(Direction) * abi.QP_WAYS * int(record["qp_buckets"]))
    obj.set_max_entries("test_clock", 1 << int(record["test_clock_steps_log2"]))
    anew = _made_anew(reused) if reused else ()
    if reused:
        for name in [name for name in tree.KEPT_MAPS if name not in anew]:
            _reuse(obj, name, reused / name)
    for program in tree.PROGRAMS:
        obj.keep_log(program)
    try:
        obj.load()
    except OSError as error:
        said = obj.log()
        obj.__exit__()
        raise _load_error(error, said) from error
    if reused and COUNTERS in anew:
        _carry_counters(reused / COUNTERS, obj.map_fd(COUNTERS))
    return obj


def _made_anew(reused: Path) -> list[str]:
    """The maps of this build that a tree of a layout before does not have, or has with fewer counters."""
    if meta.read(reused)[0]["abi"] == abi.ABI:
        return []
    return [COUNTERS, *(name for name in tree.LATER_MAPS if not (reused / name).exists())]


def _carry_counters(pin: Path, to_fd: int) -> None:
    """Go on counting from where the layout before has come to; its counters are the first ones of this one."""
    cpus = libbpf.possible_cpus()
    with opened(pin) as fd:
        size = libbpf.map_value_bytes(fd)
        before = np.frombuffer(libbpf.map_lookup(fd, 0, size * cpus), np.uint8).reshape(cpus, size)
    counters = np.zeros((cpus, abi.COUNTERS.itemsize), np.uint8)
    counters[:, :size] = before
    libbpf.map_update(to_fd, 0, counters.tobytes())


def _reuse(obj: libbpf.BpfObject, name: str, pin: Path) -> None:
    with opened(pin) as fd:
        try:
            obj.reuse_map(name, fd)
        except OSError as error:
            raise VersionError(
                f"map {name} of the running dataplane has another layout than this build's",
                _reload_hint(pin.parent.name),
            ) from error


def _load_error(error: OSError, said: str) -> DataplaneError:
    if error.errno == errno.EPERM:
        return DataplaneError(
            "the kernel refuses BPF programs", "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are needed"
        )
    if not KERNEL_BTF.exists():
        return KernelError(
            "this kernel has no BTF", "a kernel with CONFIG_DEBUG_INFO_BTF is needed, 5.18 or newer"
        )
    detail = f"\n{said}" if said else ""
    return KernelError(
        f"the kernel refused the programs: {error.strerror}{detail}", "report this with `uname -r`"
    )


def _pin_all(obj: libbpf.BpfObject, directory: Path) -> None:
    for name in tree.MAPS:
        libbpf.pin(obj.map_fd(name), directory / name)
    libbpf.pin(obj.map_fd(".rodata"), directory / tree.SETTINGS_MAP)
    for name in tree.PROGRAMS:
        libbpf.pin(obj.program_fd(name), directory / name)


def _write_test_clock(obj: libbpf.BpfObject, clock: TestClock) -> None:
    curve = shared(obj.map_fd("test_clock"), abi.TEST_CLOCK_STEP)
    curve["phase_q16"], curve["rate_q40"] = clock.clock.phase_q16, clock.clock.rate_q40


def _create(where: TreePath, ifindex: int, settings: Settings, tag: str) -> Loaded:
    interface.require_usable(ifindex, where.ifname)
    generic = _generic_will_do(ifindex, settings)
    record = np.zeros(1, dtype=abi.META)
    record["abi"], record["ifindex"], record["tag"] = abi.ABI, ifindex, tag.encode()
    with (
        _open_and_load(settings.to_bytes(), None) as obj,
        _tags_left_on(where.ifname) as record["offloads"],
        _temporary(where) as new,
    ):
        if settings.test_clock:
            _write_test_clock(obj, settings.test_clock)
        _pin_all(obj, new)
        mode, why = hooks.attach_xdp(
            obj.program_fd("xdp_ingress"), ifindex, where.ifname, new / tree.XDP_LINK, generic=generic
        )
        record["xdp_mode"] = mode
        meta.write(new, record)
        libbpf.map_update(obj.map_fd("control"), 0, control.initial().tobytes())
        hooks.attach_tc(obj.program_fd("tc_egress"), ifindex, new, hooks.EGRESS)
    return Loaded(where, mode, tag, changed=True, why_generic=why)


@contextmanager
def _tags_left_on(ifname: str) -> Iterator[int]:
    """Have a NIC leave VLAN tags on; if what follows fails it does what it did before."""
    switched_off = interface.leave_tags_on(ifname)
    try:
        yield switched_off
    except BaseException:
        interface.give_back(ifname, switched_off)
        raise


def _swap(where: TreePath, ifindex: int, old: Loaded, tag: str) -> Loaded:
    record = meta.read(where.path)
    record["abi"], record["tag"] = abi.ABI, tag.encode()
    with _open_and_load(_settings(where), where.path) as obj, _temporary(where) as new:
        _pin_all(obj, new)
        meta.write(new, record)
        for hook in hooks.HOOKS:
            if (where.path / hook.link).exists():
                with opened(where.path / hook.link) as link:
                    libbpf.pin(link, new / hook.link)
        try:
            attached.put_right(where, new, ifindex)
        except (OSError, DataplaneError):
            attached.put_right(where, where.path, ifindex)
            raise
    with Maps(where) as maps:  # a layout before has a queue pair's slice at another place of its record
        maps.next_generation()
    return Loaded(where, old.mode, tag, changed=True)
