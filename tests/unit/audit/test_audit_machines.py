"""What is read of hosts of several kinds, from trees made after documented formats."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import audit_trees
import msgspec
import pytest

from cwdp.audit.areas.all import AREAS
from cwdp.audit.collecting import Wanted, collect
from cwdp.shared.audit.catalogue import CATALOGUE, Fact
from cwdp.shared.audit.facts import HostFacts, Subject

MACHINES = audit_trees.names()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, HostFacts]:
    return {name: facts_of(audit_trees.write(name, tmp_path_factory.mktemp(name))) for name in MACHINES}


def facts_of(root: Path, **wanted: Any) -> HostFacts:
    return asyncio.run(collect(Wanted(host="a", root=str(root), **wanted)))


def subject(host: HostFacts, kind: str, name: str = "") -> Subject:
    (found,) = (one for one in host.subjects if (one.kind, one.name) == (kind, name))
    return found


def is_of_kind(fact: Fact, value: Any) -> bool:
    match fact.kind:
        case "flag":
            return isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "text":
            return isinstance(value, str) and bool(value)
        case "numbers":
            return isinstance(value, list) and all(isinstance(one, int | float) for one in value)
        case "texts":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)


def test_there_are_machines() -> None:
    assert MACHINES == ["cloud", "h100", "infiniband", "mi300x", "v100"]


OF_NETWORK = {"reach", "fabric"}
"""Areas of audits of the network only: what agents find out by sending, and what the manager knows of the fabric."""


def test_areas_of_the_catalogue_are_those_that_are_read() -> None:
    assert {fact.area for fact in CATALOGUE.values()} == {*AREAS, *OF_NETWORK}


def test_every_fact_of_the_catalogue_is_delivered(hosts: dict[str, HostFacts]) -> None:
    delivered = {
        f"{one.kind}.{fact}" for host in hosts.values() for one in host.subjects for fact in one.facts
    }
    assert delivered == {name for name, fact in CATALOGUE.items() if fact.area not in OF_NETWORK}


@pytest.mark.parametrize("name", MACHINES)
def test_facts_are_of_the_catalogue_and_of_its_kinds(hosts: dict[str, HostFacts], name: str) -> None:
    assert hosts[name].troubles == {}
    for one in hosts[name].subjects:
        assert not one.facts.keys() & one.missing.keys()
        assert {f"{one.kind}.{fact}" for fact in one.missing} <= CATALOGUE.keys()
        wrong = [
            fact
            for fact, value in one.facts.items()
            if not is_of_kind(CATALOGUE[f"{one.kind}.{fact}"], value)
        ]
        assert wrong == []


@pytest.mark.parametrize("name", MACHINES)
def test_facts_travel_as_json_and_message_pack(hosts: dict[str, HostFacts], name: str) -> None:
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(hosts[name]), type=HostFacts) == hosts[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "h100",
            {
                ("host", ""): 1,
                ("nic", "back"): 8,
                ("nic", "front"): 1,
                ("rdma", "back"): 8,
                ("rdma", "front"): 1,
                ("gpu", ""): 8,
            },
        ),
        (
            "mi300x",
            {("host", ""): 1, ("nic", "back"): 8, ("nic", "front"): 1, ("rdma", "back"): 8, ("gpu", ""): 8},
        ),
        ("v100", {("host", ""): 1, ("nic", "back"): 3, ("rdma", "back"): 1, ("gpu", ""): 4}),
        ("cloud", {("host", ""): 1, ("nic", "back"): 1, ("rdma", "back"): 1}),
        ("infiniband", {("host", ""): 1, ("nic", "front"): 1, ("rdma", ""): 2}),
    ],
)
def test_subjects_and_roles(
    hosts: dict[str, HostFacts], name: str, expected: dict[tuple[str, str], int]
) -> None:
    assert Counter((one.kind, one.role) for one in hosts[name].subjects) == expected
    assert hosts[name].subjects[0].kind == "host"


EXPECTED: list[tuple[str, str, str, dict[str, Any]]] = [
    ("h100", "host", "", {
        "os": "ubuntu 22.04", "iommu": "pt", "product": "NVIDIA DGXH100", "bios_date": "2023-10-17", "cpus": 224,
        "numa_nodes": 2, "memory_bytes": 2113384448 * 1024, "hugepages_1g": 4, "ofed_version": "24.10-1.1.4",
        "rdma_core_version": "1.14.54.0", "has_gpu_peer_memory": True, "clock_daemons": ["chronyd", "phc2sys"],
        "clock_synchronised": True, "clock_bound_ns": 210, "acs_bridges": ["0000:26:01.0"],
        "default_routes": ["ipv4 eth0"], "dns_servers": ["10.0.0.53", "10.0.1.53"],
    }),
    ("h100", "nic", "rail5", {
        "device": "15b3:1021 15b3:0041", "pci_address": "0000:c0:00.0", "pcie_gtps": 32.0, "pcie_width": 16,
        "pcie_read_request_bytes": 4096, "pcie_payload_bytes": 256, "numa_node": 1, "irqs": 2, "irqs_off_node": 0,
        "speed_bps": 400_000_000_000, "fec": "rs", "mtu_bytes": 9000, "pfc_priorities": [3],
        "ets_percent": [20, 0, 0, 80, 0, 0, 0, 0], "dscp_priorities": ["26:3", "48:6"], "trust": "dscp",
        "ecn_receiver": [3], "ecn_sender": [3], "routes": ["10.1.5.10/31", "0.0.0.0/0 table 101"],
        "module": "NVIDIA MMS4X00-NS400", "module_serial": "MT2330FT05", "module_temperature_c": 51.5,
        "module_rx_power_dbm": [-0.46, -0.4, -0.56, -0.32], "module_tx_power_dbm": [0.41] * 4,
        "eswitch_mode": "legacy", "firmware_stored": "28.43.1014", "growing_errors": [],
    }),
    ("h100", "rdma", "mlx5_5/1", {
        "netdev": "rail5", "board": "MT_0000000838", "state": "ACTIVE", "rate_bps": 400_000_000_000, "gids_v2": 1,
        "roce_mode": "RoCE v2", "roce_tos": 106, "traffic_class": 106, "out_of_sequence": 0, "link_downed": 0,
    }),
    ("h100", "gpu", "4", {
        "product": "NVIDIA H100 80GB HBM3", "pci_address": "0000:9d:00.0", "pcie_gtps": 32.0, "numa_node": 1,
        "persistence": True, "rows_pending": False, "nvlinks": 18, "nvlink_errors": 0, "throttled_by": [],
        "power_limit_w": 700.0,
    }),
    ("mi300x", "host", "", {
        "iommu": "translating", "transparent_hugepages": "always", "numa_balancing": True, "governors": ["schedutil"],
        "rp_filter": 2, "gpu_driver": "6.8.5", "has_gpu_peer_memory": True, "acs_bridges": ["0000:00:01.0"],
        "clock_daemons": ["systemd-timesyncd"], "default_routes": ["ipv4 eno1", "ipv6 eno1"],
    }),
    ("mi300x", "nic", "gpu2_eth", {"driver": "bnxt_en", "pcie_payload_bytes": 512, "firmware_stored": "231.2.63.0", "trust": "dscp"}),
    ("mi300x", "nic", "eno1", {
        "module": "FINISAR CORP FTLC1154RDPL", "module_temperature_c": 38.2,
        "module_rx_power_dbm": [-2.22, -2.15, -2.08, -40.0], "module_tx_power_dbm": [-0.46] * 4,
    }),
    ("mi300x", "gpu", "0", {"vbios": "113-M3000100-102", "uuid": "5b7e32b1c9d00", "pcie_width": 16, "numa_node": 0}),
    ("v100", "host", "", {"iommu": "off", "has_gpu_peer_memory": False, "clock_synchronised": False, "rdma_core_version": "1.14.37.2"}),
    ("v100", "nic", "ens1f1", {
        "master": "bond0", "bond_mode": "802.3ad", "pcie_gtps": 8.0, "pcie_width": 8, "pcie_width_max": 16, "pcie_errors": 3,
        "irqs_off_node": 2, "speed_bps": 100_000_000_000, "duplex": "full", "rx_crc_errors": 17, "trust": "pcp",
        "growing_errors": ["rx_crc_errors", "rx_errors"], "firmware": "16.31.1014 (MT_0000000012)", "firmware_stored": "16.35.2000",
    }),
    ("v100", "rdma", "mlx5_bond_0/1", {"netdev": "bond0", "out_of_sequence": 1234, "ack_timeouts": 9, "growing_errors": ["out_of_sequence"]}),
    ("v100", "gpu", "2", {"nvlinks": 5, "nvlinks_max": 6, "nvlink_errors": 7, "persistence": False}),
    ("v100", "gpu", "3", {"throttled_by": ["power cap"], "power_limit_w": 300.0}),
    ("cloud", "host", "", {"clock_source": "kvm-clock", "clock_bound_ns": 45000, "numa_nodes": 1}),
    ("cloud", "nic", "ens5", {"driver": "virtio_net", "pci_address": "0000:00:05.0", "numa_node": -1, "autonegotiation": False}),
    ("infiniband", "rdma", "mlx5_1/1", {
        "link_layer": "InfiniBand", "state": "ACTIVE", "rate_bps": 400_000_000_000, "lmc": 2, "sm_lid": 1, "gids_v2": 0,
        "node_description": "node7 mlx5_1", "board": "MT_0000000838", "firmware": "28.43.1014", "link_downed": 1,
    }),
    ("cloud", "rdma", "rxe0/1", {"netdev": "ens5", "out_of_sequence": 0, "link_downed": 0}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "of", "expected"), EXPECTED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_facts(hosts: dict[str, HostFacts], name: str, kind: str, of: str, expected: dict[str, Any]) -> None:
    found = subject(hosts[name], kind, of).facts
    assert {fact: found.get(fact) for fact in expected} == expected


@pytest.mark.parametrize(
    ("name", "kind", "of", "expected"),
    [
        ("mi300x", "host", "", {"clock_bound_ns": "its clock is not synchronised"}),
        ("mi300x", "nic", "eno1", {"pfc_priorities": "the driver does not tell"}),
        ("mi300x", "nic", "gpu2_eth", {"ecn_sender": "the driver does not tell"}),
        ("mi300x", "gpu", "0", {"has_ecc": "not read of AMD's GPUs", "product": "no such file"}),
        ("v100", "nic", "ens1f0", {"fec": "the kernel has no netlink for ethtool (before 5.6)"}),
        ("v100", "nic", "ens1f0", {"ecn_sender": "the driver does not tell"}),
        ("v100", "gpu", "0", {"rows_failed": "NVML: Not Supported"}),
        ("v100", "rdma", "mlx5_bond_0/1", {"roce_mode": "configfs has no folder of rdma_cm"}),
        (
            "cloud",
            "host",
            "",
            {"product": "the firmware has no DMI", "governors": "the kernel governs no frequency"},
        ),
        (
            "cloud",
            "nic",
            "ens5",
            {"pcie_width": "no such file", "pcie_payload_bytes": "no PCI Express device"},
        ),
    ],
)
def test_reasons(
    hosts: dict[str, HostFacts], name: str, kind: str, of: str, expected: dict[str, str]
) -> None:
    found = subject(hosts[name], kind, of).missing
    assert {fact: found.get(fact) for fact in expected} == expected


@pytest.mark.parametrize(
    ("name", "kind", "of", "facts"),
    [
        ("h100", "nic", "eth0", {"module_temperature_c", "master", "bond_mode"}),
        ("v100", "nic", "bond0", {"pcie_width", "pfc_priorities", "module", "irqs", "ecn_sender"}),
        ("v100", "host", "", {"ofed_version"}),
        ("cloud", "host", "", {"gpu_driver", "has_gpu_peer_memory"}),
        ("cloud", "nic", "ens5", {"irqs_off_node", "ecn_receiver"}),
        ("mi300x", "gpu", "0", {"nvlinks", "nvlinks_max", "nvlink_errors"}),
    ],
)
def test_what_does_not_apply_is_in_neither(
    hosts: dict[str, HostFacts], name: str, kind: str, of: str, facts: set[str]
) -> None:
    found = subject(hosts[name], kind, of)
    assert not facts & (found.facts.keys() | found.missing.keys())


def test_roles_can_be_given(tmp_path: Path) -> None:
    root = audit_trees.write("h100", tmp_path / "h100")
    found = facts_of(root, roles={"rail0": "front", "eth0": "back", "nope": "back", "rail1": ""})
    assert subject(found, "nic", "rail0").role == "front"
    assert subject(found, "rdma", "mlx5_0/1").role == "front"
    assert subject(found, "nic", "eth0").role == "back"
    assert subject(found, "nic", "rail1").role == ""
    assert subject(found, "rdma", "mlx5_1/1").role == ""
    assert found.troubles == {"subjects 1": "there is no NIC nope, which has a role"}
