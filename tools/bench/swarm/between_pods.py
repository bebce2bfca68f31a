"""What the leaders of pods tell each other: heard on the bus, and counted."""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from nats.aio.msg import Msg

from cwdp.shared.bus.session import dial
from cwdp.shared.bus.subjects import PODS
from manager.identity.authority import Authority


@contextlib.asynccontextmanager
async def counted(bus: str, authority: Authority) -> AsyncIterator[Counter[str]]:
    """The bytes of all messages between pods, by what follows in their subjects, as they come."""
    heard: Counter[str] = Counter()

    async def hear(message: Msg) -> None:
        heard[message.subject.removeprefix(f"{PODS}.")] += len(message.data)

    client = await dial(bus, authority.manager_credential("counts"), name="counts what pods say")
    try:
        await client.subscribe(f"{PODS}.>", cb=hear)
        yield heard
    finally:
        await client.close()
