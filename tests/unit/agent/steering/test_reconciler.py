"""What brings NICs to their desired state can be ended at any moment."""

import asyncio
from collections.abc import Collection

from cwdp.agent.steering.desired import Reconciler
from cwdp.errors import CwdpError


class _Reconciler(Reconciler):
    def loaded(self, ifname: str) -> None:
        self._look_at([ifname])

    def _reconcile(self, ifname: str) -> Collection[CwdpError]:
        del ifname
        return ()


def test_it_ends_although_there_is_something_to_do_at_that_moment() -> None:
    async def go() -> None:
        reconciler = _Reconciler(["roce0"], lambda *_: None, "refused")
        following = asyncio.create_task(reconciler.follow())
        await asyncio.sleep(0.01)
        reconciler.loaded("roce0")
        await asyncio.sleep(0)
        following.cancel()
        _, going = await asyncio.wait([following], timeout=1.0)
        assert not going

    asyncio.run(go())
