"""Programs run with bounds: of time, and of what they say. They and their children are gone at the end."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from typing import Any

MOST_SAID_BYTES = 1 << 20
LAST_WORDS_BYTES = 4096
GONE_S, LOOK_S = 1.0, 0.02
_PIECE_BYTES = 1 << 16


class ProgramError(Exception):
    """A program did not do its work; why, for people."""


@contextlib.asynccontextmanager
async def started(argv: Sequence[str]) -> AsyncIterator[Process]:
    """A program in a process group of its own, which is killed at the end, whoever in it still runs.

    Args:
        argv: the program and its arguments.

    Raises:
        ProgramError: it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, process_group=0
        )
    except OSError as error:
        raise ProgramError(f"{argv[0]} cannot be started: {error.strerror}") from error
    try:
        yield process
    finally:
        await _end(process)


async def said_by(argv: Sequence[str], told: bytes, within_s: float) -> bytes:
    """What a program says on its standard output until its end.

    Args:
        argv: the program and its arguments.
        told: on its standard input, which then ends.
        within_s: it is killed after that.

    Raises:
        ProgramError: it cannot be started, fails, says more than `MOST_SAID_BYTES`, or does not end in time.
    """
    async with started(argv) as process:
        hearing, words = asyncio.create_task(_heard(process)), asyncio.create_task(last_words(process))
        try:
            async with asyncio.timeout(within_s):
                await _tell(process, told)
                await ended(process, hearing)
            kill(process)
            async with asyncio.timeout(GONE_S):
                said, last = await hearing, await words
        except TimeoutError:
            raise ProgramError(f"{argv[0]} did not end within {within_s:.1f} s and was killed") from None
        finally:
            await given_up(hearing, words)
    if process.returncode:
        raise ProgramError(f"{argv[0]} failed: {last or f'status {process.returncode}'}")
    return said


async def last_words(process: Process, most_lines: int = 1) -> str:
    """The last lines that a program writes to its standard error, once that has ended."""
    assert process.stderr is not None
    kept = b""
    while piece := await process.stderr.read(_PIECE_BYTES):
        kept = (kept + piece)[-LAST_WORDS_BYTES:]
    lines = kept.decode(errors="replace").strip().splitlines()
    return "; ".join(line.strip() for line in lines[-most_lines:])


async def ended(process: Process, hearing: "asyncio.Task[bytes]") -> None:
    """Wait for the end of a program, not of its children, or until hearing it has failed."""
    while process.returncode is None and not (  # noqa: ASYNC110 - Process.wait may wait for who has its pipes, too
        hearing.done() and hearing.exception()
    ):
        await asyncio.sleep(LOOK_S)


async def _tell(process: Process, told: bytes) -> None:
    """Write to a program's standard input, and end it; one that does not read on is no trouble yet."""
    assert process.stdin is not None
    process.stdin.write(told)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await process.stdin.drain()
    process.stdin.close()


async def _heard(process: Process) -> bytes:
    assert process.stdout is not None
    said = b""
    while piece := await process.stdout.read(_PIECE_BYTES):
        said += piece
        if len(said) > MOST_SAID_BYTES:
            raise ProgramError(f"the program said more than {MOST_SAID_BYTES} bytes")
    return said


async def given_up(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and wait until nothing of them goes on."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def kill(process: Process) -> None:
    """Kill what is left of a process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _end(process: Process) -> None:
    """Kill what is left of a process group; one that the kernel does not let go, or that has left the group, is left behind."""
    kill(process)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GONE_S):
            for said in (process.stdout, process.stderr):
                while said is not None and await said.read(_PIECE_BYTES):
                    pass
            await process.wait()
