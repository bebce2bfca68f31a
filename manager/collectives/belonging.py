"""Which calls are of which job. Pure."""

from collections.abc import Iterable

from cwdp.shared.bus.messages import host_of
from manager.collectives.store import Collective
from manager.jobs.inference import Job


class Ranks:
    """Those that may be of a job: on its hosts, and of its processes on hosts of which these are known."""

    def __init__(self, job: Job) -> None:
        self.hosts = {host_of(nic) for nic in job.members}
        self._processes = {(owner.host, owner.pid) for owner in job.owners}
        self._known = {host for host, _ in self._processes}

    def calls(self, calls: Iterable[Collective]) -> list[Collective]:
        """Those of the calls of which all ranks are."""
        return [
            call
            for call in calls
            if all(
                rank.host in self.hosts
                and (rank.host not in self._known or (rank.host, rank.pid) in self._processes)
                for rank in call.ranks
            )
        ]
