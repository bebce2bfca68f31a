"""What hosts and switches of an InfiniBand subnet are called."""

from dataclasses import replace

import pytest
from ib_worlds import clos

from cwdp.shared.ib.names import Names


@pytest.mark.parametrize(
    ("description", "nic"),
    [
        ("node01 mlx5_0", "node01/mlx5_0"),
        ("node01 HCA-1", "node01/HCA-1"),
        ("node01", "node01/1"),
        ("", "0x0000000000003000/1"),
        ("rack/3 mlx5 0", "rack-3/mlx5_0"),
        ("node\u20280 a", "node?0/a"),
        ("  spaced   mlx5_1 ", "spaced/mlx5_1"),
        ("???", "0x0000000000003000/1"),
    ],
)
def test_a_host_s_port_is_a_nic(description: str, nic: str) -> None:
    names = Names(clos(leaves=1, spines=1, hosts=1, names={"h0 mlx5_0": description}))
    assert list(names.nics) == [nic]


def test_of_those_with_one_name_all_but_one_have_their_guid() -> None:
    subnet = clos(leaves=2, spines=1, hosts=1, names={"h1 mlx5_0": "h0 mlx5_0", "l1": "l0"})
    names = Names(subnet)
    assert sorted(names.nics) == ["h0/mlx5_0", "h0/mlx5_0-0000000000003001"]
    assert set(names.nodes) >= {"l0", "l0-0000000000002001"}


def test_second_ports_of_a_device_have_their_number() -> None:
    subnet = clos(leaves=1, spines=1, hosts=1)
    ports = subnet.ports.copy()
    ports["number"][-1] = 2
    assert list(Names(replace(subnet, ports=ports)).nics) == ["h0/mlx5_0.2"]


def test_ports_of_switches_are_told_apart() -> None:
    names = Names(clos(leaves=1, spines=1, hosts=1))
    assert {"s0:1", "l0:2", "h0/mlx5_0"} <= set(names.ports)
