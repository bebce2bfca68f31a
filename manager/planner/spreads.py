"""How queue pairs that are yet to be connected are to be spread over paths. No I/O."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from cwdp.shared.bus.messages import Hello, Spread, UdAddress, nic_id
from manager.fabric.routes import DirectedLink, Pair
from manager.planner.candidates import Candidates, Choices

MOST_CHOICES = 16
MOST_OF_A_HOST = 4_096


class Spreads:
    """Makes them for hosts whose programs have loaded the verbs shim, anew only where something has changed."""

    def __init__(self) -> None:
        self._rests_on: object = None
        self._made: dict[str, list[Spread]] = {}

    def of(
        self,
        hellos: Iterable[Hello],
        pairs: Collection[Pair],
        candidates: Candidates,
        dead: Collection[DirectedLink],
    ) -> Mapping[str, list[Spread]]:
        """What to tell each host that has such programs.

        Args:
            hellos: of all hosts.
            pairs: of NICs and addresses that have to do with each other.
            candidates: the known paths.
            dead: links not to use.
        """
        told = list(hellos)
        nics = {
            nic_id(one.host, nic.ifname): (one.host, nic.ifname)
            for one in told
            if one.verbs and not one.observe_only
            for nic in one.nics
        }
        if not nics:
            return {}
        uds = {
            address: nic.ud for one in told for nic in one.nics for address in (nic.ipv4, nic.ipv6) if address
        }
        mine = sorted(pair for pair in pairs if pair[0] in nics)
        rests_on = candidates.number, frozenset(dead), tuple(nics), mine, uds
        if rests_on != self._rests_on:
            self._rests_on, self._made = rests_on, _made(nics, mine, uds, candidates, dead)
        return self._made


def _made(
    nics: Mapping[str, tuple[str, str]],
    pairs: Iterable[Pair],
    uds: Mapping[str, UdAddress | None],
    candidates: Candidates,
    dead: Collection[DirectedLink],
) -> dict[str, list[Spread]]:
    links = candidates.routes.links
    avoided = {i for i, link in enumerate(links) if link in dead} if dead else set()
    made: defaultdict[str, list[Spread]] = defaultdict(list)
    for src, dst_addr in pairs:
        host, ifname = nics[src]
        choices = candidates.of(src, dst_addr)
        if choices is not None and len(made[host]) < MOST_OF_A_HOST:
            sports = disjoint_ports(choices, avoided)
            made[host].append(Spread(nic=ifname, dst_addr=dst_addr, sports=sports, dst_ud=uds.get(dst_addr)))
    return dict(made)


def disjoint_ports(choices: Choices, avoided: Collection[int]) -> list[int]:
    """A port of each path that crosses none of the links avoided, of so many as a table has room for.

    Paths come first that cross what none before them does, so that few share a link where there are more than fit. Where all
    cross links that are avoided these are as good as any.
    """
    living = [k for k, path in enumerate(choices.paths) if not any(link in avoided for link in path)]
    left = living or list(range(len(choices.paths)))
    crossed: defaultdict[int, int] = defaultdict(int)
    ports: list[int] = []
    while left and len(ports) < MOST_CHOICES:
        k = min(left, key=lambda k: (max((crossed[link] for link in choices.paths[k]), default=0), k))
        left.remove(k)
        ports.append(choices.ports[k])
        for link in choices.paths[k]:
            crossed[link] += 1
    return ports
