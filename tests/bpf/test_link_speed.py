"""What the kernel says of a link's speed, and which of it a wire stands for."""

import pytest

from cwdp.slices.linkspeed import link_bps, wire_bps


@pytest.mark.usefixtures("namespace")
def test_the_speed_that_a_veth_tells_is_no_limit() -> None:
    assert link_bps("roce0") == 10 * 10**9
    assert wire_bps("roce0") is None
    assert wire_bps("nobody") is None
