"""Questions that get no answer, and what is said instead."""

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn

from aiohttp import web

_KINDS = {400: web.HTTPBadRequest, 404: web.HTTPNotFound, 503: web.HTTPServiceUnavailable}


def refuse(error: str, hint: str | None = None, status: int = 400) -> NoReturn:
    """Answer that something is wrong, and what to do about it.

    Raises:
        web.HTTPException: always.
    """
    told = {"error": error} | ({} if hint is None else {"hint": hint})
    raise _KINDS[status](text=json.dumps(told), content_type="application/json")


def refuse_job(name: str) -> NoReturn:
    """Answer that no job has a name.

    Raises:
        web.HTTPException: always.
    """
    refuse(
        f"no job is called {name!r}",
        "`cwdp job` lists those whose queue pairs sent in bursts in the last 30 s",
        404,
    )


def sort_and_limit(query: Mapping[str, str], sorts: Sequence[str]) -> tuple[str, int]:
    """How to sort, by default the first way, and how many to list, by default all.

    Raises:
        web.HTTPException: it is none of these ways, or no number.
    """
    sort, limit = query.get("sort", sorts[0]), query.get("limit", "0")
    if sort not in sorts or not limit.isdecimal():
        refuse(f"sort is {' or '.join(sorts)}, limit a whole number")
    return sort, int(limit)
