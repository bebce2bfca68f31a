"""Programs of ordinary users: they reach the agent's socket, and nothing else of it."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import need
import pytest
from asynchronous import asynchronous
from waiting import WAIT_S

from cwdp.agent.config import VerbsConfig
from cwdp.agent.programs.listening import FOLDER_MODE, SOCKET_MODE
from cwdp.agent.verbs import keeper as keeper_module
from cwdp.agent.verbs.keeper import VerbsKeeper
from cwdp.agent.verbs.owners import Owners
from cwdp.rdma import shimwire
from cwdp.rdma.shimwire import HELLO, MAGIC, VERSION, Kind

NOBODY = 65_534
PYTHON = "/usr/bin/python3"
"""The environment's may be closed to others."""

AS_A_USER = """
import os, socket, sys
path, greeting = sys.argv[1], bytes.fromhex(sys.argv[2])
folder = os.path.dirname(path)
said = []
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
    sock.connect(path)
    sock.send(greeting)
    data, fds, _, _ = socket.recv_fds(sock, 1024, 1)
    said.append(f"table {len(fds)}")
    for name, do in {
        "write the table": lambda: os.pwrite(fds[0], b"x", 0),
        "cut the table": lambda: os.ftruncate(fds[0], 0),
        "remove": lambda: os.unlink(path),
        "rename": lambda: os.rename(path, path + "2"),
        "make": lambda: open(os.path.join(folder, "x"), "w"),
        "close it to others": lambda: os.chmod(path, 0o600),
    }.items():
        try:
            do()
            said.append(f"could {name}")
        except PermissionError:
            pass
print("; ".join(said))
"""


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of a socket in a folder that is not there yet, below one that all may enter."""
    need.root("as it becomes another user")
    monkeypatch.setattr(keeper_module, "sources", lambda _nics: [])
    monkeypatch.setattr(Owners, "look", lambda _self: asyncio.sleep(0))
    with tempfile.TemporaryDirectory(prefix="cwdp-verbs-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "run/verbs.sock"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def is_open(path: Path) -> bool:
    return path.exists() and mode(path) == SOCKET_MODE


@asynchronous
async def test_a_user_reaches_the_socket_and_nothing_else(path: Path) -> None:
    keeper = VerbsKeeper(VerbsConfig(socket=str(path)), ["nic0"], ["nic0"])
    before = os.umask(0o077)  # as the unit's
    running = asyncio.create_task(keeper.run())
    try:
        async with asyncio.timeout(WAIT_S):
            while not is_open(path):  # noqa: ASYNC110 - what is waited for is a file
                await asyncio.sleep(0.01)
        assert mode(path.parent) == FOLDER_MODE
        greeting = HELLO.pack(MAGIC, Kind.HELLO, b"", 0, 0, VERSION, 0, 0, b"SLURM_JOB_ID=1")
        done = await asyncio.to_thread(
            subprocess.run,
            [PYTHON, "-I", "-c", AS_A_USER, str(path), greeting.hex()],
            capture_output=True, text=True, check=False, timeout=WAIT_S, user=NOBODY, group=NOBODY, extra_groups=[],
            cwd="/",
        )  # fmt: skip
        assert (done.returncode, done.stdout, done.stderr) == (0, "table 1\n", "")
    finally:
        os.umask(before)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_the_folder_of_programs_is_not_the_managers() -> None:
    assert Path(shimwire.SOCKET).parent != Path("/run/cwdp")
