"""Devices, ports, GIDs and counters as read from a copy of the kernel's files."""

from pathlib import Path

import pytest

from cwdp.errors import RdmaError
from cwdp.rdma import sysfs
from cwdp.rdma.sysfs import Counter, Device, Gid, Port

ZERO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
PORT_FILES = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "link_layer": "Ethernet",
    "rate": "100 Gb/sec (4X EDR)",
    "gids/0": "fe80:0000:0000:0000:7822:19ff:fec0:acb9",
    "gids/1": "0000:0000:0000:0000:0000:ffff:0a00:0101",
    "gids/2": ZERO_GID,
    "gids/10": "fd00:0001:0000:0000:0000:0000:0000:0001",
    "gid_attrs/types/0": "IB/RoCE v1",
    "gid_attrs/types/1": "RoCE v2",
    "gid_attrs/types/10": "RoCE v2",
    "gid_attrs/ndevs/1": "eth0",
    "gid_attrs/ndevs/10": "eth0",
    "counters/port_xmit_data": "123",
    "counters/symbol_error": "N/A",
    "hw_counters/out_of_sequence": "7",
    "hw_counters/lifespan": "10",
}


def write(where: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(
        tmp_path / "mlx5_0",
        {"node_type": "1: CA", "fw_ver": "22.31.1014", "node_guid": "0c42:a103:0001:0002"},
    )
    write(tmp_path / "mlx5_0" / "ports" / "1", PORT_FILES)
    return tmp_path


def test_devices(root: Path) -> None:
    assert sysfs.devices(root) == [Device("mlx5_0", "CA", "22.31.1014", "0c42:a103:0001:0002")]


def test_a_host_without_devices_is_told_what_to_do(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "not-there"):
        with pytest.raises(RdmaError, match="no RDMA device") as caught:
            sysfs.devices(root)
        assert "modprobe" in caught.value.hint


def test_ports(root: Path) -> None:
    assert sysfs.ports(root) == [
        Port("mlx5_0", 1, "ACTIVE", "LinkUp", "Ethernet", 100_000_000_000, "eth0"),
    ]


def test_a_port_without_interface_or_rate(root: Path) -> None:
    other = root / "ibp0" / "ports" / "2"
    write(other, {"state": "1: DOWN", "phys_state": "3: Disabled", "link_layer": "InfiniBand", "rate": "?"})
    assert Port("ibp0", 2, "DOWN", "Disabled", "InfiniBand", None, None) in sysfs.ports(root)


@pytest.mark.parametrize(
    ("text", "bps"), [("2.5 Gb/sec (1X SDR)", 2_500_000_000), ("400 Gb/sec (4X NDR)", 400_000_000_000)]
)
def test_rates(root: Path, text: str, bps: int) -> None:
    write(root / "mlx5_0" / "ports" / "1", {"rate": text})
    assert sysfs.ports(root)[0].rate_bps == bps


def test_gids_in_use_in_the_order_of_their_index(root: Path) -> None:
    assert sysfs.gids(root) == [
        Gid("mlx5_0", 1, 0, "fe80::7822:19ff:fec0:acb9", "IB/RoCE v1", None),
        Gid("mlx5_0", 1, 1, "::ffff:10.0.1.1", "RoCE v2", "eth0"),
        Gid("mlx5_0", 1, 10, "fd00:1::1", "RoCE v2", "eth0"),
    ]


def test_the_bare_subnet_prefix_of_infiniband_is_no_gid(root: Path) -> None:
    write(root / "mlx5_0" / "ports" / "1", {"gids/3": "fe80:0000:0000:0000:0000:0000:0000:0000"})
    assert 3 not in {gid.index for gid in sysfs.gids(root)}


def test_counters_that_can_be_read(root: Path) -> None:
    assert sysfs.counters(root) == [
        Counter("mlx5_0", 1, "counters", "port_xmit_data", 123),
        Counter("mlx5_0", 1, "hw_counters", "out_of_sequence", 7),
    ]
