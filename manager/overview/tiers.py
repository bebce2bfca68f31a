"""The fabric as a map: tiers of switches, one by one or in groups, and the links between them. No I/O."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from manager.hosts.order import in_order
from manager.moment.moment import Moment
from manager.moment.parts import Parts
from manager.overview import advice
from manager.view.json_values import Json
from manager.view.link_table import Link, by_trouble
from manager.view.severity import worst_state

ONE_BY_ONE = 24
RUN = 16
NAMED = 4


@dataclass(frozen=True)
class _Group:
    """Switches that are shown as one."""

    id: str
    tier: int
    members: Sequence[str]
    is_open: bool


def tier_map(moment: Moment, is_open: Collection[str] = ()) -> Json:
    """The map.

    Args:
        moment: when.
        is_open: groups that are shown one by one.
    """
    parts = moment.parts
    groups = list(_groups(parts, is_open))
    of = {name: group.id for group in groups for name in group.members}
    links = _between(moment, of)
    states = defaultdict[str, list[str]](list)
    for each in links:
        states[each["a"]].append(each["state"])
        states[each["b"]].append(each["state"])
    tiers = defaultdict[int, list[Json]](list)
    for group in groups:
        tiers[group.tier].append(_shown(group, parts, states[group.id]))
    nics = Counter(of[leaf] for leaf in parts.leaf_of.values() if leaf in of)
    return {
        "tiers": [{"tier": tier, "groups": tiers[tier]} for tier in sorted(tiers)],
        "links": links,
        "nics": [{"a": group, "count": count} for group, count in nics.items()],
        "suspects": list(parts.suspects),
        "set_aside": list(parts.aside),
        "avoided": [{"a": a, "b": b} for a, b in sorted(parts.avoided)],
        "rails": [{"ifname": ifname, "leaves": list(leaves)} for ifname, leaves in parts.rails.items()],
        "findings": advice.findings(moment),
    }


def _groups(parts: Parts, is_open: Collection[str]) -> Iterator[_Group]:
    by_tier = defaultdict[int, list[str]](list)
    for name in (*parts.leaves, *in_order(name for name, tier in parts.tiers.items() if tier > 1)):
        by_tier[parts.tiers[name]].append(name)
    for tier, names in by_tier.items():
        if len(names) <= ONE_BY_ONE:
            yield from (_Group(name, tier, [name], False) for name in names)
            continue
        for members in _runs(parts, names):
            group = f"{tier}:{members[0]}"
            if group in is_open:
                yield from (_Group(name, tier, [name], True) for name in members)
            else:
                yield _Group(group, tier, members, False)


def _runs(parts: Parts, names: Sequence[str]) -> list[list[str]]:
    """Switches with the same ones above them are a pod, or those with the same ones below; else there are runs of a size."""
    for near in (parts.above, parts.below):
        pods = defaultdict[tuple[str, ...], list[str]](list)
        for name in names:
            pods[tuple(near.get(name, ()))].append(name)
        if 1 < len(pods) <= len(names) / 2:
            return list(pods.values())
    return [list(names[i : i + RUN]) for i in range(0, len(names), RUN)]


def _shown(group: _Group, parts: Parts, states: Sequence[str]) -> Json:
    names = group.members
    single = names[0] if len(names) == 1 else None
    answers = {node.name: node.answers for node in parts.nodes}
    return {
        "id": group.id,
        "label": single or f"{names[0]} .. {names[-1]}",
        "members": len(names),
        "names": list(names[:NAMED]),
        "is_open": group.is_open,
        "switch": single,
        "nics": sum(len(parts.nics_at.get(name, ())) for name in names),
        "state": worst_state(states),
        "answers": all(answers[name] for name in names),
    }


def _between(moment: Moment, of: dict[str, str]) -> list[Json]:
    """The links between two groups as one, with the worst of them."""
    found = defaultdict[Link, list[Link]](list)
    for low, high in moment.parts.cables:
        found[of[low], of[high]].append((low, high))
    return [_link(moment, ends, cables) for ends, cables in sorted(found.items())]


def _link(moment: Moment, ends: Link, cables: Sequence[Link]) -> Json:
    ways = [way for low, high in cables for way in ((low, high), (high, low))]
    rows = sorted((moment.links.row_of(*way) for way in ways), key=by_trouble)
    avoided = sum(way in moment.parts.avoided for way in ways)
    return {
        "a": ends[0],
        "b": ends[1],
        "count": len(cables),
        "state": worst_state([*(row["state"] for row in rows), *(["avoided"] if avoided else [])]),
        "queue_p99_ns": _largest(rows, "queue_p99_ns"),
        "share": _largest(rows, "share"),
        "load_bps": _largest(rows, "load_bps"),
        "loss": _largest(rows, "loss"),
        "avoided": avoided,
        "worst": {"a": rows[0]["a"], "b": rows[0]["b"]},
    }


def _largest(rows: Sequence[Json], key: str) -> float | None:
    return max((row[key] for row in rows if row[key] is not None), default=None)
