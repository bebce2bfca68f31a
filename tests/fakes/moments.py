"""The moment of now of a manager's state."""

import asyncio
from types import SimpleNamespace
from typing import Any

from manager.api.moments import Moments
from manager.moment.moment import Moment
from manager.state import FleetState


def moment_of(state: FleetState) -> Moment:
    """What a page would be made from now."""
    sources: Any = SimpleNamespace(state=state)
    return asyncio.run(Moments(sources).now())
