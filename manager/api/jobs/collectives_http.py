"""`/v1/collectives`: the last calls of NCCL and RCCL."""

from aiohttp import web

from manager.api.refusal import sort_and_limit
from manager.collectives.store import CollectiveStore
from manager.collectives.views import SORTS, collectives


def routes(store: CollectiveStore) -> list[web.RouteDef]:
    """What is read of them."""

    async def listed(request: web.Request) -> web.Response:
        sort, limit = sort_and_limit(request.query, SORTS)
        answer = collectives(store, job=request.query.get("job", ""), sort=sort, limit=limit)
        return web.json_response(answer)

    return [web.get("/v1/collectives", listed)]
