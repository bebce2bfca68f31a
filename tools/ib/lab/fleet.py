"""A manager and agents that read the subnet of an InfiniBand lab, which stay until `down`. Nobody starts again what dies."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from cwdp.cli.client import ManagerClient
from cwdp.errors import LabError, ManagerError
from manager.config import PlannerSettings, ProbeSettings, RoceConfig
from manager.identity.authority import DEFAULT_POD, Authority
from tools.free_ports import free_port
from tools.ib.lab import links, programs, state
from tools.lab.fleet.settings import manager_toml
from tools.waiting import wait_for

MANAGER = "manager"
CWDP = [sys.executable, "-m", "cwdp"]
UP_S, POLL_S = 60.0, 0.1
BEGUN_S = 1.0
"""A program has no environment for a moment while it is started."""


def start(name: str, readers: Sequence[str], page: str = "") -> Path:
    """Start a fleet, and wait until its manager knows the subnet; returns where the manager answers.

    Args:
        name: of the lab.
        readers: nodes that an agent reads at.
        page: where the manager's page is to be had, as HOST:PORT; empty for nowhere.

    Raises:
        LabError: there is no such lab or node, a fleet is up in it, or it does not come up; then nothing of it is left.
    """
    with state.locked(name):
        known = state.require(name)
        if programs.running(name, *_parts(known.readers)):
            raise LabError(
                f"a fleet is up in the InfiniBand lab {name!r}",
                f"Run `cwdp lab ib fleet down --name {name}` first.",
            )
        for node in readers:
            links.require_host(known.spec.topology, node)
        known.readers = list(dict.fromkeys(readers))
        state.save(known)
    try:
        _start_programs(name, known.readers, page)
        _wait(name, known.readers)
    except BaseException:
        stop(name)
        raise
    return socket(name)


def stop(name: str) -> bool:
    """End the fleet of a lab; return False if there was none.

    Raises:
        LabError: there is no such lab.
    """
    with state.locked(name):
        known = state.require(name)
        was_any = programs.end(name, *_parts(known.readers))
        known.readers = []
        state.save(known)
    return was_any


def socket(name: str) -> Path:
    """Where the manager of a lab's fleet answers."""
    return state.run_dir(name) / "manager.sock"


def lacking(name: str, readers: Sequence[str]) -> list[str]:
    """What of a fleet does not run."""
    if not readers:
        return []
    told = {MANAGER: "the fleet's manager", **{node: f"the fleet's agent at {node}" for node in readers}}
    return [words for part, words in told.items() if not programs.running(name, part)]


def _parts(readers: Sequence[str]) -> list[str]:
    return [MANAGER, *readers]


def _start_programs(name: str, readers: Sequence[str], page: str) -> None:
    folder = state.run_dir(name)
    bus = f"127.0.0.1:{free_port()}"
    authority = Authority.load_or_new(folder / "authority")
    config = folder / "manager.toml"
    settings = manager_toml(probes=ProbeSettings(), roce=RoceConfig(), planner=PlannerSettings(enabled=False))
    config.write_text(f'name = "{MANAGER}"\nauthority = "{folder / "authority"}"\n{settings}')
    own = ["--socket", str(socket(name)), "--state-dir", str(folder / "state"), "--bus-listen", bus]
    run = [*CWDP, "manager", "run", "--config", str(config), *own, "--page", page]
    programs.start(name, run, folder / "manager.log", part=MANAGER)
    for node in readers:
        credential = folder / f"{node}.creds"
        authority.host_credential(node, DEFAULT_POD).save(credential)
        own_config = folder / f"{node}.toml"
        own_config.write_text(_agent_toml(node, bus, credential, folder / f"{node}.keys"))
        run = [*CWDP, "agent", "run", "--config", str(own_config)]
        programs.start(name, run, folder / f"{node}.log", node=node, part=node)


def _agent_toml(node: str, bus: str, credential: Path, keys: Path) -> str:
    values = {"host": node, "nats": f"nats://{bus}", "credential": str(credential), "keys": str(keys)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join([*lines, "nics = []", "[ib]", "read = true", ""])


def _wait(name: str, readers: Sequence[str]) -> None:
    client = ManagerClient(f"unix://{socket(name)}")

    def is_complete() -> bool:
        return not lacking(name, readers)

    def is_over() -> bool:
        return _knows(client, readers) or not wait_for(is_complete, BEGUN_S, poll_s=POLL_S)

    wait_for(is_over, UP_S, poll_s=POLL_S)
    if not _knows(client, readers):
        why = ", ".join(f"{each} has ended" for each in lacking(name, readers))
        raise LabError(
            f"the fleet did not come up: {why or 'its manager does not know the subnet'}",
            f"Read the logs: {state.run_dir(name)}/*.log",
        )


def _knows(client: ManagerClient, readers: Sequence[str]) -> bool:
    """Whether the manager hears all agents, and knows a subnet by them."""
    try:
        is_heard = int(client.get("/v1/manager")["hosts_up"]) == len(readers)
        return is_heard and any(one["is_fresh"] for one in client.get("/v1/fabric").get("infiniband", ()))
    except ManagerError:
        return False
