"""What the manager wants of TCP connections, as the agent takes it."""

from ipaddress import ip_address
from typing import Any

from cwdp.agent.steering.tcp import translate
from cwdp.dataplane.steering.tcp import TcpConnection, TcpSteer
from cwdp.shared.tcp import SteerTcp


def _wish(**fields: Any) -> SteerTcp:
    named = {
        "nic": "nic0",
        "local_addr": "10.0.0.1",
        "remote_addr": "10.0.0.2",
        "local_port": 43_210,
        "remote_port": 5_201,
        "sport": 50_000,
    }
    return SteerTcp(**(named | fields))


def test_desired_steering_becomes_managed() -> None:
    steers, refused = translate([_wish(backup_sport=50_001, override=True)])
    connection = TcpConnection(ip_address("10.0.0.1"), ip_address("10.0.0.2"), 43_210, 5_201)
    assert steers == {connection: TcpSteer(50_000, 50_001, managed=True, override=True)}
    assert refused == []


def test_what_is_impossible_is_left_out_and_the_rest_done() -> None:
    wishes = [
        _wish(sport=80),
        _wish(local_addr="fd00::1"),
        _wish(ports=False, flow_label=True),
        _wish(ports=False),
        _wish(remote_port=22),
        _wish(remote_port=22, sport=50_009),
        _wish(backup_sport=50_000),
        _wish(remote_addr="h2"),
    ]
    steers, refused = translate(wishes)
    assert [connection.remote_port for connection in steers] == [22]
    assert [error.message for error in refused] == [
        "source port 80 is none of RoCEv2's",
        "fd00::1 and 10.0.0.2 are of two families",
        "10.0.0.1:43210 > 10.0.0.2:5201 has no flow label",
        "10.0.0.1:43210 > 10.0.0.2:5201 has no flow label",
        "10.0.0.1:43210 > 10.0.0.2:22 is wanted twice",
        "source port 50000 cannot be its own backup",
        "h2 is no IP address",
    ]
