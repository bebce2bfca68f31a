"""Two ends of many queue pairs, connected, that do what they are told (`tools/rdma/program/told.h`)."""

import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cwdp.errors import LabError
from tools.rdma.testbed.fabric import RdmaHost
from tools.rdma.testbed.programs import LOOPBACK, PORT, await_listener, process
from tools.rdma.testbed.shimmed import AS_NCCL, Environment, bare

_ANSWER_S = 180.0


class Told:
    """One end. Made by `begun`."""

    def __init__(self, program: "subprocess.Popen[str]") -> None:
        self._program = program

    def tell(self, line: str) -> None:
        """Have it do something; it is to be answered before it is told something else."""
        assert self._program.stdin is not None
        self._program.stdin.write(f"{line}\n")
        self._program.stdin.flush()

    def answer(self) -> list[int]:
        """The numbers that it answers.

        Raises:
            LabError: it does not, or something has failed.
        """
        assert self._program.stdout is not None
        if not select.select([self._program.stdout], [], [], _ANSWER_S)[0]:
            raise LabError(f"`{self._program.args!r}` does not answer for {_ANSWER_S:g} s", "")
        line = self._program.stdout.readline()
        try:
            return [int(word) for word in line.split()]
        except ValueError as error:
            raise LabError(f"`{self._program.args!r}` {line.strip()}", "") from error


def ask(ends: Sequence[Told], line: str) -> list[list[int]]:
    """Have all do something at once, and return what each answers."""
    for end in ends:
        end.tell(line)
    return [end.answer() for end in ends]


@contextmanager
def begun(
    source: RdmaHost, target: RdmaHost, queue_pairs: int, message_bytes: int, environment: Environment = bare
) -> Iterator[tuple[Told, Told]]:
    """Start both ends, which are not connected before they give their first answer; they are stopped at the end.

    Raises:
        LabError: one did not come up.
    """

    def command(host: RdmaHost) -> list[str]:
        numbers = (host.gid_index(4), PORT, 0, message_bytes, 0, queue_pairs)
        return [str(AS_NCCL), host.device, *map(str, numbers)]

    with process(command(target), environment(target)) as server:
        await_listener(server, PORT)
        with process([*command(source), LOOPBACK], environment(source)) as client:
            yield Told(client), Told(server)
