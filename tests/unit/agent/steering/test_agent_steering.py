"""What the manager wants of queue pairs, as the agent takes it: what is refused is told once and tried again."""

import asyncio
from collections.abc import Callable
from ipaddress import ip_address

import pytest
from fakes import until
from msgspec.structs import replace

from cwdp.agent.steering import desired, steering
from cwdp.agent.steering.steering import DesiredSteering, translate
from cwdp.dataplane.steering.steering import QpKey, Steer, parse_address
from cwdp.errors import CwdpError, InterfaceError, SteeringError
from cwdp.shared.bus.messages import RoceSettings, SteerQp
from cwdp.shared.tcp import SteerTcp


def _wish(
    qpn: int = 7, *, nic: str = "nic0", sport: int = 50_000, backup_sport: int | None = None
) -> SteerQp:
    return SteerQp(nic=nic, dst_addr="10.0.0.2", qpn=qpn, sport=sport, backup_sport=backup_sport)


@pytest.mark.parametrize("override", [False, True])
def test_desired_steering_becomes_managed(*, override: bool) -> None:
    steers, refused = translate([replace(_wish(backup_sport=50_001), override=override)])
    key = QpKey(ip_address("10.0.0.2"), 7)
    assert steers == {key: Steer(50_000, 50_001, managed=True, override=override)}
    assert refused == []


def test_what_is_impossible_is_left_out_and_the_rest_done() -> None:
    wishes = [
        _wish(1, sport=80),
        _wish(1 << 24),
        _wish(2),
        _wish(2, sport=50_009),
        _wish(3, backup_sport=50_000),
    ]
    steers, refused = translate(wishes)
    assert [key.qpn for key in steers] == [2]
    assert [error.message for error in refused] == [
        "source port 80 is none of RoCEv2's",
        "QPN 16777216 does not fit into 24 bits",
        "10.0.0.2 QPN 2 is wanted twice",
        "source port 50000 cannot be its own backup",
    ]


def test_an_ipv4_address_has_one_form_and_none_names_an_interface() -> None:
    assert parse_address("::ffff:10.0.0.2") == ip_address("10.0.0.2")
    for text in ("fe80::1%nic0", "h2", ""):
        with pytest.raises(SteeringError, match="is no IP address"):
            parse_address(text)


class _Kernel:
    """Stands in for `steering.apply`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.connections: list[list[SteerTcp]] = []
        self.refused: list[CwdpError] = []
        self.failure: CwdpError | None = None

    def apply(
        self, ifname: str, wanted: list[SteerQp], _roce: RoceSettings | None, connections: list[SteerTcp]
    ) -> list[CwdpError]:
        self.connections.append(connections)
        self.calls.append((ifname, [wish.qpn for wish in wanted]))
        if self.failure:
            raise self.failure
        return self.refused


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> _Kernel:
    made = _Kernel()
    monkeypatch.setattr(steering, "apply", made.apply)
    monkeypatch.setattr(desired, "RETRY_S", 0.01)
    return made


def _run(kernel: _Kernel, calls: int, wanted: list[SteerQp]) -> list[tuple[str, str]]:
    """Follow until there were so many calls; what was told."""
    told: list[tuple[str, str]] = []

    async def follow() -> DesiredSteering:
        desired = DesiredSteering(["nic0", "nic1"], lambda ifname, why: told.append((ifname, why)))
        job = asyncio.create_task(desired.follow())
        desired.loaded("nic0")
        await asyncio.sleep(0)
        desired.want(wanted, None, [])
        await until(lambda: len(kernel.calls) >= calls)
        await asyncio.sleep(0.03)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
        return desired

    desired = asyncio.run(follow())
    assert desired.counters == {"steer_refused": len(told)}
    return told


def test_each_nic_gets_its_own_steering_once(kernel: _Kernel) -> None:
    assert _run(kernel, 2, [_wish(1), _wish(2, nic="nic1"), _wish(3)]) == []
    assert kernel.calls == [("nic0", [1, 3]), ("nic1", [2])]
    assert kernel.connections == [[], []]


def _applied(kernel: _Kernel, *steps: Callable[[DesiredSteering], None]) -> list[list[int]]:
    """The QPNs that are steered after each of some steps, by a NIC of which 1 and 2 were wanted before."""

    async def follow() -> None:
        wishes = DesiredSteering(["nic0"], lambda *_: None)
        wishes.want([_wish(1), _wish(2)], None, [])
        job = asyncio.create_task(wishes.follow())
        await until(lambda: len(kernel.calls) == 1)
        for number, step in enumerate(steps, start=2):
            step(wishes)
            await until(lambda: len(kernel.calls) == number)  # noqa: B023 - it is awaited here
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)

    asyncio.run(follow())
    return [qpns for _, qpns in kernel.calls]


def test_what_is_pinned_comes_before_what_is_desired(kernel: _Kernel) -> None:
    pinned = _wish(2, sport=51_000)
    assert _applied(kernel, lambda wishes: wishes.pin(pinned), lambda wishes: wishes.unpin(pinned)) == [
        [1, 2],
        [2, 1],
        [1, 2],
    ]


def test_nothing_is_pinned_before_anything_is_desired(kernel: _Kernel) -> None:
    """What an agent before this one has steered stays until then."""

    async def follow() -> None:
        wishes = DesiredSteering(["nic0"], lambda *_: None)
        job = asyncio.create_task(wishes.follow())
        wishes.pin(_wish())
        await asyncio.sleep(0.05)
        assert kernel.calls == []
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)

    asyncio.run(follow())


def test_while_a_nic_is_held_no_other_queue_pairs_to_those_peers_are_steered(kernel: _Kernel) -> None:
    elsewhere = replace(_wish(4), dst_addr="10.0.0.9")

    def want_more(wishes: DesiredSteering) -> None:
        wishes.hold("nic0", {"10.0.0.2"})
        wishes.want([_wish(2), _wish(3), elsewhere], None, [])

    assert _applied(kernel, want_more, lambda wishes: wishes.release("nic0")) == [[1, 2], [2, 4], [2, 3, 4]]


def test_what_is_refused_is_told_once_and_tried_again(kernel: _Kernel) -> None:
    kernel.refused = [SteeringError("no more fit")]
    told = _run(kernel, 6, [_wish()])
    assert told == [("nic0", "no more fit"), ("nic1", "no more fit")]


def test_a_nic_without_a_dataplane_is_no_end(kernel: _Kernel) -> None:
    kernel.failure = InterfaceError("there is no interface nic0")
    assert _run(kernel, 4, [_wish()])[0] == ("nic0", "there is no interface nic0")


def test_connections_that_are_new_are_looked_at_again_until_the_far_end_may_have_confirmed_them(
    kernel: _Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sockets' timers can be set only then."""
    monkeypatch.setattr(desired, "RETRY_S", 3600.0)
    monkeypatch.setattr(steering, "CONFIRMED_S", 0.01)
    monkeypatch.setattr(steering, "LOOK_S", 3600.0)
    one = SteerTcp(
        nic="nic0",
        local_addr="10.0.0.1",
        remote_addr="10.0.0.2",
        local_port=1,
        remote_port=2,
        sport=50_000,
    )

    async def follow() -> None:
        wishes = DesiredSteering(["nic0"], lambda *_: None)
        job = asyncio.create_task(wishes.follow())
        await asyncio.sleep(0)
        wishes.want([], None, [])
        await until(lambda: len(kernel.calls) == 1)
        await asyncio.sleep(0.05)
        assert len(kernel.calls) == 1
        wishes.want([], None, [one])
        await until(lambda: kernel.connections[1:4] == [[one]] * 3)
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)

    asyncio.run(follow())
