"""One switch, or a pair of leaves: its NICs, its links, what is measured between NICs. No I/O."""

from manager.moment.moment import Moment
from manager.moment.pairs import nic_matrix
from manager.overview import advice
from manager.overview.qp_rows import QpRows
from manager.view.json_values import Json

MOST_PAIRS = 50


def leaf(moment: Moment, name: str, peer: str | None, rows: QpRows) -> Json | None:
    """A switch with what hangs from it; None where there is none of that name, or no such peer."""
    parts, table = moment.parts, moment.links
    if name not in parts.tiers or (peer is not None and peer not in parts.tiers):
        return None
    nics = parts.nics_at.get(name, [])
    beside = [*nics, *parts.above.get(name, []), *parts.below.get(name, [])]
    links = [way for other in beside for way in ((name, other), (other, name))]
    places = _places(moment, name, peer)
    pairs = moment.leaf_pairs
    return {
        "name": name,
        "peer": peer,
        "tier": parts.tiers[name],
        "rails": parts.rails_of(name),
        "nics": [
            {"nic": nic, "to": table.row_of(name, nic), "from": table.row_of(nic, name)} for nic in nics
        ],
        "uplinks": [
            {"up": table.row_of(name, high), "down": table.row_of(high, name)}
            for high in parts.above.get(name, [])
        ],
        "downlinks": [
            {"down": table.row_of(name, low), "up": table.row_of(low, name)}
            for low in parts.below.get(name, [])
        ],
        "matrix": _matrix(moment, nics, peer),
        "pair": None if pairs is None or peer is None else pairs.between(name, peer),
        "findings": advice.of_links(moment, links),
        "suspects": [each for each in parts.suspects if name in (each["what"], each["at"], each["expected"])],
        "queue_pairs": rows.slowest(places, MOST_PAIRS),
        "queue_pair_count": len(places),
    }


def _places(moment: Moment, name: str, peer: str | None) -> list[int]:
    """Queue pairs that begin or end at the leaf, go from it to its peer, or cross a switch above leaves."""
    nics_at, talkers = moment.parts.nics_at, moment.talkers
    here = set(nics_at.get(name, []))
    if peer is None and not here:
        ways = [(name, low) for low in moment.parts.below.get(name, [])]
        return [int(i) for i in talkers.crossing(ways)]
    if peer is None:
        return [int(i) for i in talkers.at(here)]
    there = set(nics_at.get(peer, []))
    return [i for i in talkers.fastest.tolist() if talkers.names[i].src in here and talkers.dst[i] in there]


def _matrix(moment: Moment, nics: list[str], peer: str | None) -> Json | None:
    if moment.nic_pairs is None:
        return None
    parts = moment.parts
    if peer is None:
        return nic_matrix(moment.nic_pairs, nics, parts.leaves, parts.leaf_of)
    columns = parts.nics_at.get(peer, [])
    return nic_matrix(moment.nic_pairs, nics, columns, {nic: nic for nic in columns})
