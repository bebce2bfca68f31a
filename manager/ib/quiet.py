"""When programs of hosts have connected something last, as far as hosts tell. No I/O."""

from collections.abc import Collection

from manager.queue_pairs.verbs import HostVerbs, VerbsStore


class Quiet:
    """Of all hosts that are looked at."""

    def __init__(self) -> None:
        self._told: dict[str, HostVerbs | None] = {}
        self._newest_s: dict[str, float] = {}

    def see(self, hosts: Collection[str], verbs: VerbsStore, now_s: float) -> None:
        """Look at what these hosts tell of now. One that is new here may have just connected something."""
        told = {host: verbs.host(host) for host in hosts}
        for host, now in told.items():
            before = self._told.get(host)
            if host not in self._told or (now is not before and _has_more(now, before)):
                self._newest_s[host] = now_s
        self._told = told

    def lasts_s(self, one: str, other: str, now_s: float) -> float:
        """For how long neither of two hosts has connected anything."""
        return now_s - max(self._newest_s[one], self._newest_s[other])


def _has_more(now: HostVerbs | None, before: HostVerbs | None) -> bool:
    if now is None:
        return False
    known = {} if before is None else before.qps
    return any(those.keys() - known.get(nic, {}).keys() for nic, those in now.qps.items())
