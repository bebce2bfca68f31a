"""Makes all troubles of a schedule in their time, each track by a thread of its own."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from cwdp.cli.output import progress
from tools.soak.acts import made
from tools.soak.stage import Stage
from tools.soak.troubles import ABSENCE, KINDS, Trouble

SAID_EVERY_S, GLANCE_S = 60.0, 0.5


class Play:
    """A schedule in a lab.

    Attributes:
        done: the troubles with the times at which they really began and ended.
        errors: those that could not be made or undone, and why.
    """

    def __init__(self, stage: Stage, schedule: Sequence[Trouble]) -> None:
        self._stage, self._schedule = stage, schedule
        self.done: list[Trouble] = []
        self.errors: list[str] = []

    def until(self, end_s: float, check: Callable[[], None]) -> None:
        """Play it; no trouble is left when this ends, whatever ends it.

        Args:
            end_s: since the start.
            check: called all the time; what it raises ends the play.
        """
        tracks: dict[str, list[Trouble]] = {}
        for trouble in self._schedule:
            track = KINDS[trouble.kind].track if trouble.kind in KINDS else ABSENCE
            tracks.setdefault(track, []).append(trouble)
        threads = [threading.Thread(target=self._play, args=(each,), daemon=True) for each in tracks.values()]
        for thread in threads:
            thread.start()
        try:
            self._wait(end_s, check)
        except BaseException:
            self._stage.stop.set()
            raise
        finally:
            for thread in threads:
                thread.join()

    def _wait(self, end_s: float, check: Callable[[], None]) -> None:
        said_s = 0.0
        while self._stage.now_s < end_s:
            time.sleep(GLANCE_S)
            check()
            if self._stage.now_s - said_s > SAID_EVERY_S:
                said_s = self._stage.now_s
                progress(f"{said_s:6.0f} s of {end_s:.0f}; {len(self.done)} troubles are over")

    def _play(self, troubles: Sequence[Trouble]) -> None:
        for trouble in troubles:
            if self._stage.stop.wait(max(0.0, trouble.begin_s - self._stage.now_s)):
                return
            try:
                self._make(trouble)
            except Exception as error:  # noqa: BLE001 - the others of the track are to come all the same
                self.errors.append(f"{trouble.told}: {error}")
                progress(f"{self._stage.now_s:6.0f} s  could not: {trouble.told}: {error}")

    def _make(self, trouble: Trouble) -> None:
        stage, begin_s = self._stage, self._stage.now_s
        progress(f"{begin_s:6.0f} s  {trouble.told}, for {trouble.end_s - trouble.begin_s:.0f} s")
        try:
            with made(stage, trouble):
                stage.stop.wait(max(0.0, trouble.end_s - stage.now_s))
        finally:
            progress(f"{stage.now_s:6.0f} s  over: {trouble.told}")
            self.done.append(replace(trouble, begin_s=begin_s, end_s=stage.now_s))
