"""The generator's processes of a run, started together and their results put together."""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.roce.collective.rank import Rank
from tools.roce.flows import Flow
from tools.roce.process import HostProcess, Spawn
from tools.roce.results import merge, timeline

_READY_TIMEOUT_S = 30.0
_RESULT_TIMEOUT_S = 10.0
_LEAD_NS = 50_000_000  # until the start, so that every process knows of it before
_NS_PER_S = 1_000_000_000


class Generator:
    """The processes of a run, as a context: started on entry, gone on exit.

    Args:
        flows: what to send.
        spawn: starts a process on a host; `Lab.popen` of a lab.
        run_dir: for the plans, while the run lasts.
        snapshot_s: how often every host says what it has delivered so far; None for never.
        ranks: what posts messages to flows of its own; all other flows post by themselves.
    """

    def __init__(
        self,
        flows: Sequence[Flow],
        spawn: Spawn,
        run_dir: Path,
        snapshot_s: float | None = None,
        *,
        ranks: Sequence[Rank] = (),
    ) -> None:
        self._flows = flows
        self._ranks = ranks
        self._spawn = spawn
        self._run_dir = run_dir
        self._snapshot_s = snapshot_s
        self._changed = threading.Condition()
        self._stack = ExitStack()
        self._processes: list[HostProcess] = []
        self.start_ns = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for host, lines in self._plans().items():
                process = HostProcess(host, lines, self._spawn, self._run_dir, self._changed)
                stack.callback(process.close)
                self._processes.append(process)
            for process in self._processes:
                process.wait_for("ready", _READY_TIMEOUT_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self, seconds: float | None = None) -> None:
        """Begin on all hosts at the same moment (`start_ns`, CLOCK_MONOTONIC).

        Args:
            seconds: no message is begun later than this, but for those of ranks; None for flows that have an end, or
                until `finish`.
        """
        self.start_ns = time.monotonic_ns() + _LEAD_NS
        until_ns = 0 if seconds is None else self.start_ns + round(seconds * _NS_PER_S)
        self._tell(f"start {self.start_ns} {until_ns}")

    def finish(self) -> None:
        """Let no more messages be begun, but for those of ranks."""
        self._tell("finish")

    def result(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Wait until all that was begun is acknowledged or has failed; return what came of it.

        Ranks are waited for until they have done their iterations, or one of their queue pairs has failed: then the
        others wait in vain.

        Raises:
            LabError: that took more than `timeout_s`, or a process ended.
        """
        with self._changed:
            self._changed.wait_for(self._over, timeout_s)
        if not self._failed():
            for process in sorted(self._processes, key=lambda process: not process.ended):
                process.wait_for("done", 0)
        return self.stop()

    def stop(self) -> dict[str, Any]:
        """End at once, whatever is still under way; return what came of it."""
        self._tell("stop")
        hosts = {process.host: process.wait_for("result", _RESULT_TIMEOUT_S) for process in self._processes}
        return merge(self._flows, hosts, self._snapshots(), self.start_ns)

    def timeline(self) -> list[dict[str, Any]]:
        """The `timeline` of the result, as far as it has come."""
        return timeline(self._snapshots())

    def iterations(self) -> list[dict[str, Any]]:
        """What ranks have said of each iteration that they have completed, for `collective_result`.

        `rank`, `iteration`, `start_ns`, `end_ns`, and for each of the rank's steps in `steps` when its inputs were seen
        to be here and when it had computed and posted its messages, as CLOCK_MONOTONIC in ns.
        """
        return [message for process in self._processes for message in list(process.iterations)]

    def _over(self) -> bool:
        ended = any(process.ended for process in self._processes)
        return ended or self._failed() or all(process.heard("done") for process in self._processes)

    def _failed(self) -> bool:
        return any(process.heard("failed") for process in self._processes)

    def _snapshots(self) -> dict[str, list[dict[str, Any]]]:
        return {process.host: list(process.snapshots) for process in self._processes}

    def _tell(self, command: str) -> None:
        for process in self._processes:
            process.tell(command)

    def _plans(self) -> dict[str, list[str]]:
        plans: dict[str, list[str]] = {}
        for flow in self._flows:
            plans.setdefault(flow.source.host, []).append(flow.send_line())
            plans.setdefault(flow.target.host, []).append(flow.receive_line())
        for rank in self._ranks:
            plans[rank.host] += rank.lines()
        if self._snapshot_s:
            line = f"snapshots interval_ns={round(self._snapshot_s * _NS_PER_S)}\n"
            for lines in plans.values():
                lines.append(line)
        return plans
