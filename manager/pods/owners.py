"""Which pod each link belongs to, by whose NICs sit where. Pure.

A link with a leaf at one end belongs to the pod whose NICs sit below that leaf; links higher up, and those of a leaf that
several pods share, belong to none alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from cwdp.shared.bus.messages import host_of
from manager.fabric.routes import DirectedLink, is_nic


class Owners:
    """The pods of some links.

    Args:
        links: those that are known.
        pod_of: tells the pod of a host; None where no pod has it.
    """

    def __init__(self, links: Iterable[DirectedLink], pod_of: Callable[[str], str | None]) -> None:
        self._pod_of = pod_of
        self._below: defaultdict[str, set[str]] = defaultdict(set)
        self._reaches: defaultdict[str, set[str]] = defaultdict(set)
        links = list(links)
        for link in links:
            for node, other in (link, link[::-1]):
                pod = pod_of(host_of(node)) if is_nic(node) and not is_nic(other) else None
                if pod is not None:
                    self._below[other].add(pod)
        for link in links:
            for node, other in (link, link[::-1]):
                if node in self._below and other not in self._below and not is_nic(other):
                    self._reaches[other] |= self._below[node]

    def of(self, links: Iterable[DirectedLink]) -> str | None:
        """The pod in which all of some links lie; None where that is none, or several."""
        pods = {self._of_link(link) for link in links}
        return pods.pop() if len(pods) == 1 else None

    def nearest(self, links: Iterable[DirectedLink]) -> str | None:
        """As above; a link between a switch that has leaves of one pod only and one further up is nearest to that pod."""
        pods = {self._of_link(link) or self._side(link) for link in links}
        return pods.pop() if len(pods) == 1 else None

    def _of_link(self, link: DirectedLink) -> str | None:
        for node in link:
            pod = self._pod_of(host_of(node)) if is_nic(node) else None
            if pod is not None:
                return pod
        return _only(self._below[node] for node in link if node in self._below)

    def _side(self, link: DirectedLink) -> str | None:
        return _only(self._reaches[node] for node in link if node in self._reaches)


def _only(pods: Iterable[set[str]]) -> str | None:
    """The pod that is in all of some sets of pods, where it is the only one in any."""
    every = set[str]().union(*pods)
    return every.pop() if len(every) == 1 else None
