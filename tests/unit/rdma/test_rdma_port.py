"""Which GID of which device an interface is used by, and what is said where there is none."""

from pathlib import Path

import pytest
from test_rdma_sysfs import ZERO_GID, write

from cwdp.errors import ConfigError, CwdpError, RdmaError
from cwdp.rdma.port import PortChoice, RdmaPort, find_port

LINK_LOCAL = "fe80:0000:0000:0000:7822:19ff:fec0:acb9"
IPV6 = "fd00:0001:0000:0000:0000:0000:0000:0001"
IPV4 = "0000:0000:0000:0000:0000:ffff:0a00:0101"


def device(root: Path, name: str, *gids: tuple[str, str, str], port: int = 1) -> None:
    """A device with these GIDs from index 0 on: GID, type, interface."""
    write(root / name, {"node_type": "1: CA", "fw_ver": "1", "node_guid": "0"})
    files = {"gids/99": ZERO_GID, "state": "4: ACTIVE"}
    for index, (gid, kind, netdev) in enumerate(gids):
        files |= {
            f"gids/{index}": gid,
            f"gid_attrs/types/{index}": kind,
            f"gid_attrs/ndevs/{index}": netdev,
        }
    write(root / name / "ports" / str(port), files)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    v2 = "RoCE v2"
    device(tmp_path, "mlx5_0", (LINK_LOCAL, "IB/RoCE v1", "eth0"), (LINK_LOCAL, v2, "eth0"))
    device(
        tmp_path,
        "mlx5_1",
        (LINK_LOCAL, v2, "eth1"),
        (IPV6, v2, "eth1"),
        (IPV4, "IB/RoCE v1", "eth1"),
        (IPV4, v2, "eth1"),
        (IPV4, v2, "eth1.7"),
    )
    device(tmp_path, "mlx5_2", (IPV6, v2, "eth2"), port=2)
    return tmp_path


def test_the_ipv4_address_is_taken_first(root: Path) -> None:
    found = find_port("eth1", PortChoice(), root)
    assert found == RdmaPort("mlx5_1", 1, 3, "::ffff:10.0.1.1")
    assert str(found) == "mlx5_1 port 1 GID 3 (::ffff:10.0.1.1)"


def test_else_an_address_of_ipv6(root: Path) -> None:
    assert find_port("eth2", PortChoice(), root) == RdmaPort("mlx5_2", 2, 0, "fd00:1::1")


def test_a_vlan_has_the_gids_of_its_own(root: Path) -> None:
    assert find_port("eth1.7", PortChoice(), root).gid_index == 4


@pytest.mark.parametrize(
    ("choice", "index"),
    [
        (PortChoice(gid_index=1), 1),
        (PortChoice("mlx5_1", 1, 0), 0),
        (PortChoice("mlx5_1"), 3),
        (PortChoice(port=1), 3),
    ],
)
def test_what_is_chosen_is_taken(root: Path, choice: PortChoice, index: int) -> None:
    assert find_port("eth1", choice, root).gid_index == index


@pytest.mark.parametrize(
    ("ifname", "choice", "kind", "message"),
    [
        ("eth1", PortChoice("mlx5_9"), RdmaError, "there is no RDMA device mlx5_9"),
        ("eth9", PortChoice(), RdmaError, "no RDMA device belongs to eth9"),
        ("eth0", PortChoice(), ConfigError, "eth0 has no RoCE v2 GID of an address"),
        ("eth1", PortChoice(gid_index=2), ConfigError, "GID index 2 is no RoCE v2 GID of eth1"),
        ("eth1", PortChoice(gid_index=4), ConfigError, "GID index 4 is no RoCE v2 GID of eth1"),
        ("eth1", PortChoice(gid_index=99), ConfigError, "GID index 99 is no RoCE v2 GID of eth1"),
        ("eth1", PortChoice("mlx5_1", 3), ConfigError, "device mlx5_1 port 3 is no RoCE v2 GID of eth1"),
        ("eth0", PortChoice("mlx5_1"), ConfigError, "device mlx5_1 is no RoCE v2 GID of eth0"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(
    root: Path, ifname: str, choice: PortChoice, kind: type[CwdpError], message: str
) -> None:
    with pytest.raises(kind, match=f"^{message}\n") as caught:
        find_port(ifname, choice, root)
    assert caught.value.hint


def test_a_host_without_rdma(tmp_path: Path) -> None:
    with pytest.raises(RdmaError, match="no RDMA device"):
        find_port("eth0", PortChoice(), tmp_path)
