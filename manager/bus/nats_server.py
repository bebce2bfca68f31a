"""The private nats-server: a supervised child process that ends when the manager ends, however it ends."""

import asyncio
import contextlib
import logging
import shutil
import socket
import time
from pathlib import Path

from cwdp.errors import BusError
from cwdp.shared.tasks import end
from manager.bus.server_config import write_config
from manager.identity.authority import Authority

BINARY = "nats-server"
START_TIMEOUT_S = 30.0
"""A cold and busy disk needs more than 10 s to read the program; one that has ended is not waited for."""

STOP_TIMEOUT_S = 3.0
PORT_FREE_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.02
RESTART_FIRST_S = 0.1
RESTART_MAX_S = 5.0
STABLE_AFTER_S = 30.0
_log = logging.getLogger("cwdp.manager.nats")


class NatsServer:
    """A nats-server on `host`:`port` that keeps its streams below `state_dir`, for the fleet of an authority.

    `restarts` counts how often it died and was started again.
    """

    def __init__(self, host: str, port: int, state_dir: Path, authority: Authority) -> None:
        shown_host = f"[{host}]" if ":" in host else host
        self.url = f"nats://{shown_host}:{port}"
        self._authority = authority
        self.restarts = 0
        self._host = host
        self._port = port
        self._state_dir = state_dir
        self._config = state_dir / "nats-server.conf"
        self._log_path = state_dir / "nats-server.log"
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The child's process id, while it runs."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the server, wait until it answers, and keep it running from then on.

        Raises:
            BusError: no nats-server here, the port is taken, or it would not start.
        """
        if shutil.which(BINARY) is None:
            raise BusError(
                f"{BINARY} is not installed",
                "run `make setup` or `apt-get install nats-server`, or give `--nats URL` of a running one",
            )
        await self._wait_for_port()
        self._config = write_config(self.url.removeprefix("nats://"), self._state_dir, self._authority)
        await self._spawn()
        self._supervisor = asyncio.create_task(self._supervise(), name="nats-server supervisor")

    async def ended(self) -> None:
        """Wait for the end of what keeps the server running, which only `stop` should bring about.

        Raises:
            Exception: what nobody has foreseen.
        """
        assert self._supervisor is not None
        await asyncio.wait([self._supervisor])
        self._supervisor.result()

    async def stop(self) -> None:
        """End the server; by force when it takes longer than a few seconds."""
        if self._supervisor is not None:
            await end(self._supervisor)
            self._supervisor = None
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _wait_for_port(self) -> None:
        """Wait for the port: the server of a manager that was killed may need a moment to end."""
        deadline = time.monotonic() + PORT_FREE_TIMEOUT_S
        while (error := _bind_error(self._host, self._port)) is not None:
            if time.monotonic() > deadline:
                raise BusError(
                    f"cannot listen on {self._host}:{self._port}: {error}",
                    "give a free address with `--bus-listen HOST:PORT`, or `--nats URL` to use a running server",
                )
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _spawn(self) -> None:
        """Start the child, tied to this process by the kernel (PR_SET_PDEATHSIG), and wait for its port."""
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                "setpriv", "--pdeathsig", "TERM", BINARY, "-c", str(self._config), stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await _answers(self._host, self._port):
            if self._process.returncode is not None or time.monotonic() > deadline:
                await self._give_up()
            await asyncio.sleep(POLL_INTERVAL_S)
        _log.info("nats-server runs pid=%d url=%s", self._process.pid, self.url)

    async def _give_up(self) -> None:
        last = self._log_path.read_text(errors="replace").strip().splitlines()[-1:]
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._process = None
        raise BusError(
            f"{BINARY} did not start on {self._host}:{self._port}: {' '.join(last) or 'it said nothing'}",
            f"its log is {self._log_path}",
        )

    async def _supervise(self) -> None:
        """Start the child again whenever it ends, waiting longer while it does not stay."""
        delay_s = RESTART_FIRST_S
        while True:
            started = time.monotonic()
            if self._process is not None:
                status = await self._process.wait()
                _log.warning("nats-server ended status=%d", status)
            if time.monotonic() - started > STABLE_AFTER_S:
                delay_s = RESTART_FIRST_S
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RESTART_MAX_S)
            self.restarts += 1
            try:
                await self._spawn()
            except (BusError, OSError) as error:
                _log.error("nats-server error=%s", error)


def _bind_error(host: str, port: int) -> str | None:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return None


async def _answers(host: str, port: int) -> bool:
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    try:
        _, writer = await asyncio.open_connection(target, port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
