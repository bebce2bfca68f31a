"""`/v1/collectives`: the last calls of NCCL and RCCL."""

from aiohttp import web

from manager.api.refusal import refuse
from manager.collectives.store import CollectiveStore
from manager.collectives.views import SORTS, collectives


def routes(store: CollectiveStore) -> list[web.RouteDef]:
    """What is read of them."""

    async def listed(request: web.Request) -> web.Response:
        query = request.query
        sort, limit = query.get("sort", SORTS[0]), query.get("limit", "0")
        if sort not in SORTS or not limit.isdecimal():
            refuse(f"sort is {' or '.join(SORTS)}, limit a whole number")
        answer = collectives(store, job=query.get("job", ""), sort=sort, limit=int(limit))
        return web.json_response(answer)

    return [web.get("/v1/collectives", listed)]
