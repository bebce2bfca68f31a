"""What a few letters may mean: hosts, NICs, switches, links, jobs. No I/O."""

from collections.abc import Iterator
from itertools import islice

from manager.moment.moment import Moment
from manager.view.json_values import Json

MOST = 20


def find(moment: Moment, text: str, hosts: Iterator[str]) -> list[Json]:
    """Names that contain a text, those that begin with it first, at most `MOST`.

    Args:
        moment: whose names.
        text: any case; nothing is found by none.
        hosts: all hosts.
    """
    wanted = text.strip().casefold()
    if not wanted:
        return []
    found = list(
        islice((each for each in _named(moment, hosts) if wanted in each["label"].casefold()), 50 * MOST)
    )
    found.sort(key=lambda each: not each["label"].casefold().startswith(wanted))
    return found[:MOST]


def _named(moment: Moment, hosts: Iterator[str]) -> Iterator[Json]:
    for name in hosts:
        yield {"label": name, "kind": "host", "where": {"page": "host", "name": name}}
    for name in moment.parts.tiers:
        yield {"label": name, "kind": "switch", "where": {"page": "leaf", "name": name}}
    for name in moment.talkers.jobs.hosts:
        yield {"label": name, "kind": "job", "where": {"page": "job", "name": name}}
    for nic, leaf in moment.parts.leaf_of.items():
        yield {"label": nic, "kind": "nic", "where": {"page": "link", "a": nic, "b": leaf}}
    for a, b in moment.parts.cables:
        yield {"label": f"{a} > {b}", "kind": "link", "where": {"page": "link", "a": a, "b": b}}
