"""The verbs programs that are run: how each is started at both ends, and what became of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cwdp.errors import LabError
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.shimmed import AS_NCCL, Environment, bare
from tools.waiting import wait_for

PORT = 18515
"""Where the server of every program listens: the default of ibv_rc_pingpong."""

LOOPBACK = "127.0.0.1"
_ACK_TIMEOUT = (
    "20"  # 4.096 us * 2**20 = 4.3 s (IBTA 9.7.6.1.3), so that a busy machine is not taken for a loss
)
_LISTENING = "0A"
_START_TIMEOUT_S = 180.0
_RUN_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 5.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Transfer:
    """A run of a program from one host to another.

    Attributes:
        program: `ibv_rc_pingpong`, `ib_write_bw`, `ib_send_bw`, `ib_read_bw`, or one of our own: `pyverbs`, and `as_nccl`,
            which comes by verbs as NCCL does.
        version: of IP.
        messages: how many.
        size: of each, bytes.
        ack_timeout: exponent of the queue pair's timer; ibv_rc_pingpong has 14 (67 ms) built in. `rdma_rxe` retries
            without end where the count is 7, as in all programs but our own, which gives up after 6 unless told.
        retries: of our own program.
        port: on which the server listens for the other end's address.
        queue_pairs: of perftest's programs and `as_nccl`: how many there are.
        depth: of perftest's programs: how many messages each may have under way.
        flow_label: of `as_nccl`, where it writes; 0, as NCCL has it, for the device's choice.
    """

    program: str
    version: int
    messages: int
    size: int = 65536
    ack_timeout: str = _ACK_TIMEOUT
    retries: int = 6
    port: int = PORT
    queue_pairs: int = 1
    depth: int | None = None
    flow_label: int = 0

    def server(self, host: RdmaHost) -> list[str]:
        """Return the command of the end that is started first."""
        if self.program == "pyverbs":
            return self._pyverbs(host, "receive")
        return self._command(host)

    def client(self, host: RdmaHost) -> list[str]:
        """Return the command of the other end."""
        if self.program == "pyverbs":
            return self._pyverbs(host, "send")
        return [*self._command(host), LOOPBACK]

    def _command(self, host: RdmaHost) -> list[str]:
        gid, size, messages = str(host.gid_index(self.version)), str(self.size), str(self.messages)
        if self.program == "ibv_rc_pingpong":
            return [self.program, "-d", host.device, "-g", gid, "-s", size, "-n", messages, "-m", "4096"]
        if self.program == "as_nccl":
            where, what = (host.gid_index(self.version), self.port), (self.messages, self.size)
            numbers = (*where, *what, self.flow_label, self.queue_pairs)
            return [str(AS_NCCL), host.device, *map(str, numbers)]
        common = [self.program, "-F", "-p", str(self.port), "-d", host.device, "-x", gid]
        window = [] if self.depth is None else ["-t", str(self.depth)]
        many = [] if self.queue_pairs == 1 else ["-q", str(self.queue_pairs)]
        return [*common, "-s", size, "-n", messages, "-u", self.ack_timeout, *many, *window]

    def _pyverbs(self, host: RdmaHost, role: str) -> list[str]:
        where = [
            "--device",
            host.device,
            "--gid-index",
            str(host.gid_index(self.version)),
            "--port",
            str(self.port),
        ]
        what = ["--messages", str(self.messages), "--size", str(self.size)]
        timer = ["--ack-timeout", self.ack_timeout, "--retries", str(self.retries)]
        return [sys.executable, "-m", "tools.rdma.testbed.pyverbs_client", role, *where, *what, *timer]


@dataclass(frozen=True)
class Outcome:
    """How a transfer ended: exit statuses (negative for a signal), and what each end printed."""

    server_status: int
    client_status: int
    server_output: str
    client_output: str


class Running:
    """A transfer that has been started. Made by `started`."""

    def __init__(self, server: "subprocess.Popen[str]", client: "subprocess.Popen[str]") -> None:
        self._server = server
        self._client = client
        self._deadline_s = time.monotonic() + _RUN_TIMEOUT_S

    def is_running(self) -> bool:
        """Return whether the client has not ended yet, and its time is not up."""
        return self._client.poll() is None and time.monotonic() < self._deadline_s

    def send_no_more(self) -> None:
        """Have our own program end with what it has sent."""
        self._client.send_signal(signal.SIGUSR1)

    def finish(self) -> Outcome:
        """Wait for the end; a server whose client failed waits in vain and is stopped."""
        client_output = _output(self._client, max(0.0, self._deadline_s - time.monotonic()))
        failed = self._client.returncode != 0
        server_output = _output(self._server, _STOP_TIMEOUT_S if failed else _RUN_TIMEOUT_S)
        return Outcome(self._server.returncode, self._client.returncode, server_output, client_output)


@contextmanager
def started(
    transfer: Transfer, source: RdmaHost, target: RdmaHost, environment: Environment = bare
) -> Iterator[Running]:
    """Start a transfer from one host to another; whatever still runs at the end is stopped.

    Raises:
        LabError: the server did not come up.
    """
    with process(transfer.server(target), environment(target)) as server:
        await_listener(server, transfer.port)
        with process(transfer.client(source), environment(source)) as client:
            yield Running(server, client)


@contextmanager
def process(argv: list[str], environment: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A program with more of an environment, its standard error with its output; what still runs at the end is killed."""
    program = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | dict(environment),
    )
    try:
        yield program
    finally:
        program.kill()
        program.wait()


def _output(program: "subprocess.Popen[str]", timeout_s: float) -> str:
    try:
        return program.communicate(timeout=timeout_s)[0]
    except subprocess.TimeoutExpired:
        program.kill()
        return program.communicate()[0]


def await_listener(server: "subprocess.Popen[str]", port: int) -> None:
    """Wait until a program listens at a port of TCP.

    Raises:
        LabError: it does not.
    """
    wait_for(lambda: _is_listening(port) or server.poll() is not None, _START_TIMEOUT_S, poll_s=_POLL_S)
    if not _is_listening(port):
        raise LabError(f"`{server.args!r}` does not listen", _output(server, 0).strip())


def _is_listening(port: int) -> bool:
    """Return whether somebody listens on a port, by the kernel's tables of TCP sockets."""
    rows = [
        row.split() for table in ("tcp", "tcp6") for row in Path("/proc/net", table).read_text().splitlines()
    ]
    return any(row[1].endswith(f":{port:04X}") and row[3] == _LISTENING for row in rows)
