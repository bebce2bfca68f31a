"""Questions that get no answer, and what is said instead."""

import json
from typing import NoReturn

from aiohttp import web


def refuse(error: str, hint: str | None = None, status: int = 400) -> NoReturn:
    """Answer that something is wrong, and what to do about it.

    Raises:
        web.HTTPException: always.
    """
    told = {"error": error} | ({} if hint is None else {"hint": hint})
    kind = web.HTTPServiceUnavailable if status == 503 else web.HTTPBadRequest
    raise kind(text=json.dumps(told), content_type="application/json")
