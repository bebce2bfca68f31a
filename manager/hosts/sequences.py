"""Reports that were lost on the way, by their numbers. No I/O."""

from collections.abc import Container

from cwdp.shared.bus.messages import Report


class Sequences:
    """The last report of each host: the boot ID of its agent, and its number."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, int]] = {}

    def follow(self, report: Report) -> int:
        """How many reports of the same agent are missing before this one."""
        boot_id, seq = self._last.get(report.host, ("", 0))
        known = report.host in self._last and boot_id == report.boot_id
        self._last[report.host] = report.boot_id, report.seq
        return max(0, report.seq - seq - 1) if known else 0

    def keep_only(self, hosts: Container[str]) -> list[str]:
        """Forget all other hosts, and return them."""
        gone = [host for host in self._last if host not in hosts]
        for host in gone:
            del self._last[host]
        return gone
