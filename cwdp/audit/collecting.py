"""Collects a host's facts by processes that may hang or crash: one area after another, each in its time."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from cwdp.audit.areas.all import AREAS
from cwdp.audit.growth import First
from cwdp.audit.notes import Notes
from cwdp.audit.subjects import Found
from cwdp.audit.wire import LENGTH_BYTES, MOST_FRAME_BYTES, SUBJECTS, Order, Said
from cwdp.shared.audit.facts import HostFacts, Role, Subject, SubjectKind

CHILD = (sys.executable, "-P", "-m", "cwdp.audit.child")
"""`-P`: what lies in the folder that a command is called in is not to be run."""


class Limits(Struct, frozen=True):
    """Of time: for a process to begin, for an area, for all of them, and for a killed process to be gone.

    A process that begins imports modules, which takes its time where all processors are busy.
    """

    begin_s: float = 10.0
    area_s: float = 5.0
    all_s: float = 20.0
    end_s: float = 1.0


class Wanted(Struct, frozen=True, kw_only=True):
    """What is to be collected.

    Attributes:
        root: of a recorded tree; "" for this host.
        record: a folder that a recording goes to; "" for none.
        roles: of NICs, where they are not to be told by devices and routes; "" takes a role away.
    """

    host: str = ""
    root: str = ""
    record: str = ""
    roles: Mapping[str, Role] = {}


class _Ended(Exception):  # noqa: N818 - it is no error of ours
    """The process has ended, or what it says is not to be understood."""


async def collect(
    wanted: Wanted,
    limits: Limits | None = None,
    child: Sequence[str] = CHILD,
) -> HostFacts:
    """Read all facts of a host; what cannot be read in time is a trouble.

    Raises:
        OSError: no process can be started.
    """
    collection = _Collection(wanted, limits or Limits(), child)
    await collection.run()
    return collection.facts()


class _Collection:
    def __init__(self, wanted: Wanted, limits: Limits, child: Sequence[str]) -> None:
        self._wanted, self._limits, self._child = wanted, limits, child
        self._left = [SUBJECTS, *AREAS]
        self._found, self._first = Found(), First()
        self._notes: list[Notes] = []
        self._troubles: dict[str, str] = {}

    async def run(self) -> None:
        ends_at = time.monotonic() + self._limits.all_s
        while self._left and time.monotonic() < ends_at:
            await self._with_a_process(ends_at)
        for area in self._left:
            self._troubles[area] = f"not read: all took {self._limits.all_s:g} s"

    def facts(self) -> HostFacts:
        """What has come home."""
        by_name: dict[tuple[str, str], list[Notes]] = {}
        for notes in self._notes:
            by_name.setdefault((notes.kind, notes.name), []).append(notes)
        roles = _roles(self._found)
        for number, trouble in enumerate(self._found.troubles):
            self._troubles[f"{SUBJECTS} {number + 1}"] = trouble
        return HostFacts(
            host=self._wanted.host or socket.gethostname(),
            taken_s=time.time(),
            subjects=[
                Subject(
                    kind=kind,
                    name=name,
                    role=role,
                    facts={
                        key: value
                        for one in by_name.get((kind, name), [])
                        for key, value in one.facts.items()
                    },
                    missing={
                        key: why for one in by_name.get((kind, name), []) for key, why in one.missing.items()
                    },
                )
                for (kind, name), role in roles.items()
            ],
            troubles=self._troubles,
        )

    async def _with_a_process(self, ends_at: float) -> None:
        """Have a process read what is left, until it is done, has ended or has to be ended."""
        order = Order(
            areas=self._left,
            root=self._wanted.root,
            record=self._wanted.record,
            roles=dict(self._wanted.roles),
            found=self._found,
            first=self._first,
        )
        process = await asyncio.create_subprocess_exec(
            *self._child, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
        area, limit_s = self._left[0], self._limits.begin_s
        try:
            async with asyncio.timeout(min(limit_s, max(ends_at - time.monotonic(), 0.0))):
                await _give(process, order)
                await _begun(process)
            limit_s = self._limits.area_s
            while self._left:
                area = self._left[0]
                await self._hear(process, min(time.monotonic() + limit_s, ends_at))
        except TimeoutError:
            self._give_up(area, self._why_late(ends_at, limit_s))
        except _Ended as why:
            self._give_up(area, str(why))
        finally:
            await self._end(process)

    async def _hear(self, process: Process, until: float) -> None:
        """Hear of the first area that is left, to its end."""
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.monotonic()):
            said = await _said(process)
            while said.begins:
                said = await _said(process)
        if said.area != self._left[0]:
            raise _Ended("the process spoke of another area")
        self._left.pop(0)
        self._notes.extend(said.notes)
        if said.trouble:
            self._troubles[said.area] = said.trouble
        if said.found is not None and said.first is not None:
            self._found, self._first = said.found, said.first

    def _give_up(self, area: str, why: str) -> None:
        if self._left and self._left[0] == area:
            self._left.pop(0)
            self._troubles[area] = why

    def _why_late(self, ends_at: float, limit_s: float) -> str:
        if time.monotonic() >= ends_at:
            return f"not read: all took {self._limits.all_s:g} s"
        return f"timed out after {limit_s:g} s"

    async def _end(self, process: Process) -> None:
        """Kill what is left of a process and what it has started; one that the kernel does not let go is left behind."""
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.end_s):
                await process.wait()


async def _give(process: Process, order: Order) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.msgpack.encode(order))
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionResetError) as error:
        raise _Ended(await _why(process)) from error
    finally:
        process.stdin.close()


async def _begun(process: Process) -> None:
    """Wait until the process says that it begins."""
    if not (await _said(process)).begins:
        raise _Ended("the process did not say that it begins")


async def _said(process: Process) -> Said:
    assert process.stdout is not None
    try:
        length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
        if length > MOST_FRAME_BYTES:
            raise _Ended("the process said more than it may")
        return msgspec.msgpack.decode(await process.stdout.readexactly(length), type=Said)
    except asyncio.IncompleteReadError as error:
        raise _Ended(await _why(process)) from error
    except msgspec.DecodeError as error:
        raise _Ended(f"what the process said is not to be understood: {error}") from error


async def _why(process: Process) -> str:
    code = await process.wait()
    if code < 0:
        return f"crashed: {signal.Signals(-code).name}"
    return f"crashed: exit status {code}"


def _roles(found: Found) -> dict[tuple[SubjectKind, str], Role]:
    """All subjects, the host first, with their roles."""
    roles: dict[tuple[SubjectKind, str], Role] = {("host", ""): ""}
    roles |= {("nic", nic.name): nic.role for nic in found.nics}
    roles |= {("rdma", port.name): port.role for port in found.ports}
    return roles | {("gpu", gpu.name): "" for gpu in found.gpus}
