"""ibsim's console: a FIFO that it reads itself holds open, and the file that takes what it says."""

import errno
import os
import re
import secrets
from pathlib import Path

from cwdp.errors import LabError
from tools.ib.lab import programs
from tools.waiting import wait_for

ANSWER_S, READY_S, POLL_S = 5.0, 30.0, 0.005
READY = "sim>"

_PORT = re.compile(
    r'^\S+\t\[(\d+)\]\t(?:"[^"]+"\[\d+\]|\t)\t *(?:lid (\d+) lmc (\d+) smlid \d+)? *(\d+)x +([\d.]+)G (\w+)/'
)
_NODE = re.compile(r'^(?:Switch|Ca) \d+ "([^"]+)"')

Ports = dict[tuple[str, int], "Port"]


class Port:
    """A port as the simulator has it; `lid` is 0 of one that owns none."""

    def __init__(self, found: "re.Match[str]") -> None:
        self.lid, self.lmc = int(found[2] or 0), int(found[3] or 0)
        self.width, self.lane_gbps = int(found[4]), float(found[5])
        self.state = found[6]

    @property
    def is_active(self) -> bool:
        """Whether it carries packets."""
        return self.state == "Active"


class Console:
    """Of the simulator of a lab, whose lock the caller holds.

    Args:
        name: of the lab.
        folder: of its files.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._fifo, self._log = name, folder / "console", folder / "ibsim.log"

    def start(self, topology: Path) -> None:
        """Start the simulator.

        Raises:
            LabError: it does not begin.
        """
        os.mkfifo(self._fifo, 0o600)
        both = os.open(self._fifo, os.O_RDWR)
        try:
            programs.start(self._name, ["ibsim", "-s", str(topology)], self._log, stdin=both)
        finally:
            os.close(both)

        def has_begun() -> bool:
            return READY in self._log.read_text(errors="replace") or not programs.running(self._name)

        wait_for(has_begun, READY_S, poll_s=POLL_S)
        said = self._log.read_text(errors="replace")
        if READY not in said:
            raise LabError(f"ibsim did not begin: {said.strip()[-200:]}", "Try again with less nodes.")

    def tell(self, *lines: str) -> None:
        """Have it do something, without asking what became of it.

        Raises:
            LabError: no simulator listens.
        """
        try:
            fd = os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT):
                raise
            raise LabError(
                f"the simulator of the InfiniBand lab {self._name!r} has died",
                f"Run `cwdp lab ib down --name {self._name}`, then `cwdp lab ib up` again.",
            ) from error
        try:
            for line in lines:
                os.write(fd, f"{line}\n".encode())
        finally:
            os.close(fd)

    def ask(self, *lines: str) -> str:
        """What it says to lines, after all of them are done.

        Raises:
            LabError: no simulator listens, or it says nothing.
        """
        begin = self._log.stat().st_size if self._log.exists() else 0
        token = secrets.token_hex(8)
        self.tell(*lines, f'Dump "{token}"')

        def said() -> str:
            with self._log.open("rb") as log:
                log.seek(begin)
                text = log.read().decode(errors="replace")
            return text if token in text else ""

        answer = wait_for(said, ANSWER_S, poll_s=POLL_S)
        if not answer:
            raise LabError(
                f"the simulator of the InfiniBand lab {self._name!r} does not answer",
                f"Run `cwdp lab ib down --name {self._name}`, then `cwdp lab ib up` again.",
            )
        return answer

    def ports(self, *nodes: str) -> Ports:
        """All ports, or those of some nodes."""
        found: Ports = {}
        node = ""
        for line in self.ask(*(f'Dump "{each}"' for each in nodes) if nodes else ("Dump",)).splitlines():
            if named := _NODE.match(line.removeprefix("sim> ")):
                node = named[1]
            elif port := _PORT.match(line):
                found[node, int(port[1])] = Port(port)
        return found
