"""Which hosts an earlier manager had probed, by the documents that it left: whether all of them are back. No I/O."""

from cwdp.shared.bus.messages import Desired, host_of
from manager.hosts.members import Members


class ProbedBefore:
    """What the documents of hosts say that have been taken up."""

    def __init__(self) -> None:
        self._has_document: dict[str, bool] = {}
        self._peers: set[str] = set()

    def note(self, host: str, document: Desired | None) -> None:
        """A host has been taken up with a document, or without one."""
        self._has_document[host] = document is not None
        if document is not None:
            self._peers.update(host_of(edge.dst) for edge in document.probes)

    def are_back(self, members: Members) -> bool:
        """Whether all that were probed are there; not known before each host that is there is known to have had a document."""
        has = self._has_document.get
        return (
            bool(self._peers)
            and all(has(host, False) for host in members.hosts)
            and all(members.ifnames(peer) is not None for peer in self._peers)
        )
