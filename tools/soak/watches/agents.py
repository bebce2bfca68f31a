"""When agents began to run, by their logs."""

import re
from collections.abc import Iterable
from datetime import datetime

from tools.soak.stage import Stage

_RUNS = re.compile(r"^(\S+) INFO cwdp\.agent running host=", re.MULTILINE)


def starts(stage: Stage) -> dict[str, list[float]]:
    """When each host's agents did, in s since the start of the soak."""
    return {
        host.name: [at_s - stage.start_unix_s for at_s in started(stage.fleet.log(host.name).read_text())]
        for host in stage.lab.hosts
    }


def started(log: str) -> Iterable[float]:
    """When agents that have written a log began to run, in s since 1970."""
    return (datetime.fromisoformat(said).timestamp() for said in _RUNS.findall(log))
