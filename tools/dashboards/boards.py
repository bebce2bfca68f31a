"""All dashboards, and how they are written."""

import json
from collections.abc import Callable

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.dashboards import fleet, hosts, jobs, links

BOARDS: dict[str, Callable[[], Dashboard]] = {
    "fleet": fleet.board,
    "links": links.board,
    "hosts": hosts.board,
    "jobs": jobs.board,
}


def rendered() -> dict[str, str]:
    """Each dashboard's JSON, by name."""
    return {
        name: json.dumps(board().build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"
        for name, board in BOARDS.items()
    }
