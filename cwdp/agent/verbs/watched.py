"""Which paths of queue pairs that hardware sends are to be watched: those that they take, and those that they could. No I/O."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from cwdp.agent.ud.orders import UdWatched
from cwdp.agent.verbs.orders import VerbsQp
from cwdp.rdma.shimwire import RTR, RTS
from cwdp.shared.bus.messages import Spread

MOST_OF_A_NIC = 512
SENDING = (RTR, RTS)
"""In the former state it sends acknowledgements: it cannot be moved, but new ones are not to take a path that is dead."""


def watched_paths(queue_pairs: Iterable[VerbsQp], spreads: Iterable[Spread]) -> dict[str, list[UdWatched]]:
    """By NIC, those that most queue pairs take first; only to peers that probe by UD queue pairs and are sent to."""
    peers = {(one.nic, one.dst_addr): one for one in spreads if one.dst_ud is not None}
    users: Counter[tuple[str, str, int]] = Counter()
    for qp in queue_pairs:
        if qp.state in SENDING and qp.sport is not None and (qp.nic, qp.dst_addr) in peers:
            users[qp.nic, qp.dst_addr, qp.sport] += 1
    sent_to = {name[:2] for name in users}
    spares = [(*pair, sport) for pair in sorted(sent_to) for sport in peers[pair].sports]
    found: defaultdict[str, list[UdWatched]] = defaultdict(list)
    for name in dict.fromkeys([*(name for name, _ in users.most_common()), *spares]):
        nic, dst_addr, sport = name
        peer = peers[nic, dst_addr].dst_ud
        if peer is not None and len(found[nic]) < MOST_OF_A_NIC:
            found[nic].append(UdWatched(peer, dst_addr, sport, name in users))
    return dict(found)
