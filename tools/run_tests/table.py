"""What became of tiers, as a table: what ran, what did not, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from rich.console import Console
from rich.table import Table

from tools.run_tests.results import LACKS, Results

CHECKS = ("lint", "types")

_WHOLE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass(frozen=True)
class Tier:
    """A tier that has come to its end, or a check, which has one result."""

    name: str
    status: int
    took_s: float
    processor_s: float
    results: Results | None
    """None of a tier that ended before it could say."""

    def failed(self, ci: bool) -> int:
        """Return how many tests failed; a tier that failed as a whole counts as one."""
        if self.results is None:
            return 1
        return self.results.failed or int(self.status not in _WHOLE or (ci and self.ran_nothing))

    @property
    def ran_nothing(self) -> bool:
        """Whether no test of it ran, though it came to its end."""
        return self.name not in CHECKS and self.results is not None and not self.results.ran

    def remarks(self) -> Iterator[str]:
        """Yield what there is to say of it beside the numbers."""
        if self.results is None:
            yield f"ended with status {self.status} before it could say"
            return
        if self.ran_nothing:
            yield "no test ran"
        for name in self.results.alone:
            yield f"passed by itself only: {name}"
        for reason, count in sorted(self.results.skipped.items()):
            yield f"{count} skipped: {reason}"

    def left_out(self) -> Iterator[str]:
        """Yield what did not run though it is meant to."""
        if self.ran_nothing:
            yield f"no test of the tier {self.name} did"
        elif self.results is not None:
            for reason, count in sorted(self.results.skipped.items()):
                if reason.startswith(LACKS):
                    yield f"{count} tests of the tier {self.name} did not: {reason}"


def report(tiers: Sequence[Tier], console: Console, ci: bool) -> int:
    """Print the table, what was left out, and the closing line; the exit status."""
    failed = sum(tier.failed(ci) for tier in tiers)
    results = [tier.results for tier in tiers if tier.results is not None]
    passed = sum(result.passed for result in results)
    skipped = sum(sum(result.skipped.values()) for result in results)
    console.print(_table(tiers, ci))
    for line in (line for tier in tiers for line in tier.left_out()):
        console.print(f"NOT EVERYTHING RAN: {line}", style="bold yellow", highlight=False, soft_wrap=True)
    for name in (name for result in results for name in result.alone):
        console.print(f"PASSED BY ITSELF ONLY: {name}", style="bold yellow", highlight=False, soft_wrap=True)
    console.print(f"{passed} passed, {failed} failed, {skipped} skipped", highlight=False)
    return int(failed > 0)


def _table(tiers: Sequence[Tier], ci: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("tier", ""):
        table.add_column(column)
    for column in ("passed", "failed", "skipped", "took", "processor"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("why")
    for tier in tiers:
        results = tier.results or Results()
        counts = (results.passed, tier.failed(ci), sum(results.skipped.values()))
        table.add_row(
            tier.name,
            _verdict(tier, ci),
            *(str(count or "-") for count in counts),
            _duration(tier.took_s),
            _duration(tier.processor_s),
            "\n".join(tier.remarks()),
        )
    return table


def _verdict(tier: Tier, ci: bool) -> str:
    if tier.failed(ci):
        return "FAILED"
    if tier.ran_nothing:
        return "DID NOT RUN"
    return "INCOMPLETE" if any(tier.left_out()) else "ok"


def _duration(took_s: float) -> str:
    minutes, seconds = divmod(round(took_s), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
