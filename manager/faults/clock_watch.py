"""Follows hosts whose clocks are set aside: a fault is what stays so, not a clock that jumped and was found anew. No I/O."""

from collections.abc import Callable, Iterable

from manager.faults.finding import Finding

WRONG_FOR_S = 10.0
"""Longer than clocks take to be found anew; until then events tell of them."""


class ClockWatch:
    """The clocks of one fleet that are wrong.

    How long each has been set aside counts up while it is, and down while it is not: one that comes and goes is found
    too, where it is wrong for most of the time.

    Args:
        open_finding: announces that a host's clock is wrong and returns its finding.
        close_finding: announces that it is over.
    """

    def __init__(
        self, open_finding: Callable[[str], Finding], close_finding: Callable[[Finding], None]
    ) -> None:
        self._open, self._close = open_finding, close_finding
        self._wrong_s: dict[str, float] = {}
        self._found: dict[str, Finding] = {}
        self._last_s: float | None = None

    def step(self, set_aside: Iterable[str], now_s: float) -> None:
        """See which clocks are set aside; `now_s` is monotonic."""
        hosts, passed_s = set(set_aside), 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        for host, wrong_s in list(self._wrong_s.items()):
            self._wrong_s[host] = min(wrong_s + (passed_s if host in hosts else -passed_s), WRONG_FOR_S)
        for host in hosts - self._wrong_s.keys():
            self._wrong_s[host] = 0.0
        for host, wrong_s in list(self._wrong_s.items()):
            if wrong_s >= WRONG_FOR_S and host not in self._found:
                self._found[host] = self._open(host)
            elif wrong_s <= 0 and host not in hosts:
                del self._wrong_s[host]
                if host in self._found:
                    self._close(self._found.pop(host))
