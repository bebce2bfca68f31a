"""Questions that get no answer, and what is said instead."""

import json
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
