"""Raising an InfiniBand lab and taking it away, whatever state an earlier command left it in."""

import shutil
from pathlib import Path

from cwdp.errors import CwdpError, LabError
from tools.ib.lab import programs, state
from tools.ib.lab.console import Console
from tools.ib.lab.state import Spec, State
from tools.waiting import wait_for

SIMULATOR, MANAGER = "ibsim", "opensm"
MANAGER_NODE = "s1"
"""Where the subnet manager runs: in a switch, so that no host's link is its own."""

IS_UP = "SUBNET UP"
TROUBLES = {
    "cannot find or setup routing engine": "opensm knows no engine {engine!r}",
    "Falling back to default routing": "opensm's {engine} cannot route this subnet, and left it to its default",
}
"""What opensm's log says where it goes on by other routes than those that were asked for."""

UP_S, POLL_S = 60.0, 0.05
SWEEP_S = 1
SETTINGS = "force_link_speed 0\nforce_link_speed_ext 0\nforce_link_width 0\nforce_log_flush TRUE\n"
"""opensm otherwise enables what ports can do, and undoes what was done to a link; and its log comes late."""


def up(spec: Spec) -> bool:
    """Raise a lab; return False if the same one is up already and complete.

    Raises:
        ConfigError: the spec cannot be built.
        LabError: another lab has this name, or programs are not installed or do not begin.
    """
    spec.validate()
    programs.require_installed()
    with state.locked(spec.name):
        known = state.load(spec.name)
        if known is not None and known.phase == "up":
            _verify(known, spec)
            return False
        _clear(spec.name)
        try:
            _build(spec)
        except BaseException:
            _clear(spec.name)
            raise
    return True


def down(name: str) -> bool:
    """Take a lab away with all that runs in it; return False if there was nothing of it."""
    with state.locked(name):
        return _clear(name)


def lacking(name: str) -> list[str]:
    """Programs that a lab needs and that do not run."""
    alive = programs.running(name).values()
    return [each for each in (SIMULATOR, MANAGER) if each not in alive]


def _build(spec: Spec) -> None:
    known = State(spec)
    state.save(known)
    folder = state.run_dir(spec.name)
    topology = folder / "topology.net"
    topology.write_text(spec.topology.text())
    Console(spec.name, folder).start(topology)
    _start_manager(spec, folder)
    known.phase = "up"
    state.save(known)


def _start_manager(spec: Spec, folder: Path) -> None:
    settings, said, log = folder / "opensm.conf", folder / "opensm.out", folder / "opensm.log"
    settings.write_text(SETTINGS)
    argv = [MANAGER, "-F", settings, "-R", spec.engine, "--lmc", spec.lmc, "-s", SWEEP_S, "-f", log]
    programs.start(spec.name, [str(each) for each in argv], said, node=MANAGER_NODE)

    def is_up() -> bool:
        return _has(log, IS_UP) or MANAGER not in programs.running(spec.name).values()

    wait_for(is_up, UP_S, poll_s=POLL_S)
    for what, message in TROUBLES.items():
        if _has(log, what):
            raise LabError(message.format(engine=spec.engine), "Give another --engine: minhop, updn, dnup.")
    if not _has(log, IS_UP):
        end = said.read_text(errors="replace").strip()[-300:]
        raise LabError(f"opensm did not bring the subnet up: {end}", "Try again, or with less nodes.")


def _has(log: Path, what: str) -> bool:
    return log.exists() and what in log.read_text(errors="replace")


def _verify(known: State, spec: Spec) -> None:
    name = spec.name
    if known.spec != spec:
        raise LabError(
            f"another InfiniBand lab with the name {name!r} is up",
            f"Take it down with `cwdp lab ib down --name {name}`, or give this one another --name.",
        )
    if missing := lacking(name):
        raise LabError(
            f"the InfiniBand lab {name!r} is up but lacks {', '.join(missing)}",
            f"Run `cwdp lab ib down --name {name}`, then `cwdp lab ib up` again.",
        )


def _clear(name: str) -> bool:
    """Remove what is left of a lab, half built or whole; return whether there was anything."""
    was_running = programs.end(name)
    folder = state.run_dir(name)
    try:
        was_there = state.load(name) is not None
    except CwdpError:
        was_there = True
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return was_running or was_there
