"""Raising a lab and taking it away, whatever state an earlier command left it in."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyroute2 import NetlinkError

from cwdp.dataplane.pinned.tree import ensure_bpffs
from cwdp.errors import CwdpError, LabError
from tools.lab import clocks, process, processor, state
from tools.lab.network import fabric, netns
from tools.lab.state import LabState
from tools.lab.topology import NODE_PATTERN, LabSpec, Topology, netns_name

_BPF_ROOT = Path("/sys/fs/bpf/cwdp")


def up(spec: LabSpec) -> bool:
    """Raise a lab; return False if the same one is up already and complete.

    The BPF file system is mounted for all hosts, which have mount namespaces of their own.

    Raises:
        DataplaneError: it cannot be mounted.
        ConfigError: the spec cannot be built.
        LabError: another lab has this name, somebody else's namespace is in the way, or the kernel refused.
    """
    spec.validate()
    with state.locked(spec.name):
        known = state.load(spec.name)
        if known is not None and known.phase == "up":
            _verify(known, spec)
            return False
        _clear(spec.name)
        _refuse_foreign(spec.name, Topology(spec).nodes)
        ensure_bpffs()
        try:
            _build(spec)
        except BaseException:
            _clear(spec.name)
            raise
    return True


def down(name: str) -> bool:
    """Take a lab away with all that it made and started; return False if there was nothing of it."""
    with state.locked(name):
        return _clear(name)


def mark(name: str) -> str:
    """Return the mark that a lab's namespaces carry as the alias of their loopback interface."""
    return f"cwdp lab {name}"


@contextmanager
def kernel_errors(doing: str) -> Iterator[None]:
    """Translate what the kernel refuses into `LabError`."""
    try:
        yield
    except (NetlinkError, OSError) as error:
        raise LabError(
            f"the kernel refused {doing}: {error}", "Run `cwdp lab down`, then `cwdp lab up`."
        ) from error


def _build(spec: LabSpec) -> None:
    topology = Topology(spec)
    lab = LabState(spec)
    state.save(lab)
    with kernel_errors(f"to build the lab {spec.name!r}"):
        for node in topology.nodes:
            netns.create(topology.netns(node), mark(spec.name))
        with fabric.open_nodes(topology, topology.nodes) as nodes:
            fabric.build(topology, nodes)
    clocks.write(spec, time.monotonic_ns(), state.run_dir(spec.name))
    lab.phase = "up"
    state.save(lab)


def _verify(known: LabState, spec: LabSpec) -> None:
    if known.spec != spec:
        raise LabError(
            f"another lab with the name {spec.name!r} is up",
            f"Take it down with `cwdp lab down --name {spec.name}`, or give this one another --name.",
        )
    missing = _missing_parts(Topology(spec))
    if missing:
        raise LabError(
            f"the lab {spec.name!r} is up but lacks {', '.join(missing)}",
            f"Run `cwdp lab down --name {spec.name}`, then `cwdp lab up` again.",
        )


def _missing_parts(topology: Topology) -> list[str]:
    """Return the nodes that lack their namespace and the ports that lack their interface."""
    found = set(_own_namespaces(topology.spec.name))
    missing = [node for node in topology.nodes if topology.netns(node) not in found]
    present = [node for node in topology.nodes if node not in missing]
    ports = [port for link in topology.links.values() for port in (link.a, link.b)]
    with fabric.open_nodes(topology, present) as nodes:
        missing += [f"{p.node}:{p.name}" for p in ports if p.node in nodes and not nodes[p.node].has(p.name)]
    return missing


def _clear(name: str) -> bool:
    """Remove what is left of a lab, half built or whole; return whether there was anything."""
    try:
        known = state.load(name)
    except CwdpError:
        known = None
    if known:
        process.stop([part.keeper for part in known.parts.values()])
        process.stop(known.processes)
    processor.remove(name)
    own = _own_namespaces(name)
    for namespace in own:
        shutil.rmtree(_BPF_ROOT / str(netns.cookie(namespace)), ignore_errors=True)
        netns.remove(namespace)
    nameless = _unfinished_names(name) if known else []
    for namespace in nameless:
        (netns.RUN_DIR / namespace).unlink()
    had_files = any(state.run_dir(name).iterdir())
    for path in state.run_dir(name).iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return bool(own or nameless or had_files)


def _own_namespaces(name: str) -> list[str]:
    return [candidate for candidate in _candidates(name) if netns.mark_of(candidate) == mark(name)]


def _unfinished_names(name: str) -> list[str]:
    """Return names that lead to no namespace: a crash came between making the name and binding it."""
    return [candidate for candidate in _candidates(name) if netns.mark_of(candidate) == ""]


def _candidates(name: str) -> list[str]:
    prefix = netns_name(name, "")
    with suppress(FileNotFoundError):
        names = sorted(path.name for path in netns.RUN_DIR.iterdir() if path.name.startswith(prefix))
        return [candidate for candidate in names if NODE_PATTERN.fullmatch(candidate.removeprefix(prefix))]
    return []


def _refuse_foreign(name: str, nodes: list[str]) -> None:
    wanted = {netns_name(name, node) for node in nodes}
    foreign = sorted(wanted.intersection(_candidates(name)))
    if foreign:
        raise LabError(
            f"the network namespace {foreign[0]!r} exists and is not this lab's",
            "Give the lab another --name, or remove the namespace if it is yours.",
        )
