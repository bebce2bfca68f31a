"""Agents that are killed, stand still or begin anew; hosts that leave, join, are revoked or cut off."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cwdp.errors import LabError
from tools.lab.network import netns
from tools.soak.acts.control import away, cut_off, killed, stopped
from tools.soak.stage import Stage
from tools.soak.troubles import Trouble

CHECKOUT = Path(__file__).resolve().parents[3]
COMMAND_S = 60.0
JOINS = 4


@contextmanager
def _restarted(stage: Stage, trouble: Trouble) -> Iterator[None]:
    stage.fleet.stop(trouble.target)
    stage.fleet.start(trouble.target)
    yield


@contextmanager
def _upgraded(stage: Stage, trouble: Trouble) -> Iterator[None]:
    """Swap the programs under traffic, as an upgrade does."""
    _cwdp(stage, trouble.target, ["dataplane", "upgrade"])
    yield


@contextmanager
def _revoked(stage: Stage, trouble: Trouble) -> Iterator[None]:
    """Put a host out, and let it in again. A lab's hosts have keys that the fleet did not sign itself, so it joins before."""
    host = trouble.target
    if host not in stage.joined:
        _join(stage, host)
    stage.change(lambda leader: leader.delete("/v1/credential", {"host": host}))
    try:
        yield
    finally:
        if not stage.stop.is_set():
            _join(stage, host)


def _join(stage: Stage, host: str) -> None:
    """By an invitation; again by another one where no leader answered."""
    wish = {"host": host, "bus": stage.fleet.bus, "hours": 1.0}
    credential = str(stage.lab.run_dir / f"{host}.creds")
    for left in reversed(range(JOINS)):
        token = str(stage.change(lambda leader: leader.put("/v1/credential", wish))["token"])
        try:
            _cwdp(stage, host, ["agent", "join", token, "--credential", credential])
        except LabError:
            if not left:
                raise
        else:
            break
    stage.joined.add(host)


def _cwdp(stage: Stage, host: str, arguments: Sequence[str]) -> None:
    """Run a command of ours on a host.

    Raises:
        LabError: it failed.
    """

    def run() -> "subprocess.CompletedProcess[str]":
        netns.enter_for_good(stage.lab.host(host).netns)
        argv = [sys.executable, "-m", "cwdp", *arguments]
        return subprocess.run(
            argv, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=COMMAND_S
        )

    done = netns.in_thread(run)
    if done.returncode:
        raise LabError(
            f"`cwdp {' '.join(arguments[:2])}` failed on {host}: {done.stderr.strip()}", "See above."
        )


ACTS = {
    "agent_killed": killed,
    "agent_stopped": stopped,
    "agent_restarted": _restarted,
    "dataplane_upgraded": _upgraded,
    "host_cut_off": cut_off,
    "host_left": away,
    "host_revoked": _revoked,
}
