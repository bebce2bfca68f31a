"""All facts of this host."""

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cwdp.agent.config import read_config
from cwdp.dataplane.abi import ROCE_PORT
from cwdp.doctor.checks.agent import UNIT
from cwdp.doctor.facts import Agent, Facts, Known, Problem
from cwdp.doctor.reading import kernel, network, nics, processes, uprobes, verbs
from cwdp.doctor.reading.programs import read_door
from cwdp.errors import ConfigError, IdentityError
from cwdp.rdma.libraries import NCCL
from cwdp.shared.bus.subjects import token
from cwdp.shared.identity.credential import load_own
from cwdp.shared.identity.probe_keys import read_keys

SYSTEMD = Path("/run/systemd/system")
TIMEOUT_S = 5.0

_T = TypeVar("_T")


def read_facts(config_path: Path) -> Facts:
    """Look at everything that the checks judge."""
    config, config_problem = _tried(lambda: read_config(config_path))
    credential, credential_problem = (
        (None, None)
        if config is None
        else _tried(lambda: load_own(Path(config.credential), token(config.host)))
    )
    keys_problem = None if config is None else _tried(lambda: _keys(Path(config.keys)))[1]
    return Facts(
        host=config.host if config else socket.gethostname(),
        config=config,
        config_problem=config_problem,
        credential=None
        if credential is None
        else Known(credential.name, credential.pod, credential.expires_s),
        credential_problem=credential_problem,
        keys_problem=keys_problem,
        kernel=kernel.read_kernel(),
        nics=nics.read_nics(config.nics if config else None),
        rdma_ports=nics.read_rdma_ports(),
        has_pyverbs=nics.has_pyverbs(),
        clock=kernel.read_clock(),
        firewall=network.read_firewall(),
        udp_sockets=network.read_udp_sockets(config.probe_port if config else ROCE_PORT),
        bus=network.read_bus(config.nats) if config else None,
        agent=_agent(),
        verbs=verbs.read_verbs(config.verbs) if config and config.verbs else None,
        nccl=read_door(NCCL, config.nccl.socket) if config and config.nccl else None,
        uprobes=uprobes.read_uprobes(config.uprobes) if config else None,
    )


def _tried(read: Callable[[], _T]) -> tuple[_T | None, Problem | None]:
    try:
        return read(), None
    except (ConfigError, IdentityError) as error:
        return None, Problem(error.message, error.hint)


def _keys(path: Path) -> None:
    """Try to read the cluster's keys; a host that has none yet is told them."""
    if path.exists():
        read_keys(path)


def _agent() -> Agent:
    unit = _unit() if SYSTEMD.is_dir() else {}
    is_there = unit.get("LoadState") == "loaded"
    return Agent(
        state=unit.get("ActiveState") if is_there else None,
        restarts=int(unit.get("NRestarts") or 0) if is_there else 0,
        processes=processes.agents_here(),
    )


def _unit() -> dict[str, str]:
    """What systemd says of the agent's unit."""
    command = ("systemctl", "show", f"{UNIT}.service", "--property", "LoadState,ActiveState,NRestarts")
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(line.split("=", 1) for line in asked.stdout.splitlines() if "=" in line)
