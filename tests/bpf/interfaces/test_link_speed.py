"""What the kernel says of a link's speed, and which of it a wire stands for."""

import asyncio

import pytest
from pyroute2 import IPRoute

from cwdp.slices.linkspeed import link_bps, wire_bps


@pytest.mark.usefixtures("namespace")
def test_the_speed_that_a_veth_tells_is_no_limit() -> None:
    assert link_bps("roce0") == 10 * 10**9
    assert wire_bps("roce0") is None
    assert wire_bps("nobody") is None


@pytest.mark.usefixtures("namespace")
def test_the_speed_that_a_tap_tells_is_no_limit() -> None:
    with IPRoute() as ip:
        ip.link("add", ifname="tap0", kind="tuntap", mode="tap")
        ip.link("set", index=ip.link_lookup(ifname="tap0")[0], state="up")
    assert link_bps("tap0") in (10 * 10**6, 10 * 10**9)  # as the kernel is older or newer
    assert wire_bps("tap0") is None


@pytest.mark.usefixtures("namespace")
def test_an_interface_may_have_no_speed() -> None:
    assert link_bps("lo") is None
    assert wire_bps("lo") is None
    assert link_bps("nobody") is None


@pytest.mark.usefixtures("namespace")
def test_a_running_event_loop_may_ask() -> None:
    async def ask() -> int | None:
        return link_bps("roce0")

    assert asyncio.run(ask()) == 10 * 10**9
