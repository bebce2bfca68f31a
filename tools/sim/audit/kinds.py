"""Four kinds of hosts as their facts: what all hosts of a kind have in common.

They are plausible, and nothing is wrong with them. `h100`: eight ConnectX-7 and eight GPUs; `mi300x`: eight Thor 2 and eight
GPUs; `v100`: an older host with two bonded ports of ConnectX-5; `cloud`: a guest with virtio and Soft-RoCE.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cwdp.shared.audit.facts import Value

Facts = dict[str, Value]
GIB = 1 << 30

_DSCP = [f"{dscp}:{dscp // 8}" for dscp in range(64)]
_LOSSLESS: Facts = {
    "pause_rx": False,
    "pause_tx": False,
    "pfc_priorities": [3],
    "ets_algorithms": ["ets", "ets", "ets", "ets", "ets", "ets", "strict", "ets"],
    "ets_percent": [10, 10, 10, 50, 10, 10, 0, 0],
    "priority_classes": [0, 1, 2, 3, 4, 5, 6, 7],
    "dscp_priorities": _DSCP,
    "trust": "dscp",
    "ecn_receiver": [3],
    "ecn_sender": [3],
}
_OFFLOADS = [
    "generic-receive-offload",
    "rx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "tx-checksumming",
]
_LINK: Facts = {
    "is_up": True,
    "has_carrier": True,
    "duplex": "full",
    "autonegotiation": True,
    "offloads": _OFFLOADS,
}
_COUNTED: Facts = {"rx_errors": 0, "rx_crc_errors": 0, "tx_errors": 0, "growing_errors": []}
_PCIE5: Facts = {
    "pcie_gtps": 32.0,
    "pcie_gtps_max": 32.0,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_read_request_bytes": 4096,
    "pcie_payload_bytes": 512,
    "irqs": 64,
    "irqs_off_node": 0,
}
_PCIE3: Facts = {**_PCIE5, "pcie_gtps": 8.0, "pcie_gtps_max": 8.0, "pcie_payload_bytes": 256, "irqs": 40}
_RDMA: Facts = {
    "state": "ACTIVE",
    "physical_state": "LinkUp",
    "link_layer": "Ethernet",
    "gids_v2": 2,
    "roce_mode": "RoCE v2",
    "roce_tos": 106,
    "traffic_class": 106,
    "growing_errors": [],
}
_METAL: Facts = {
    "kernel_release": "6.1.0-26-amd64",
    "os": "debian 12",
    "architecture": "x86_64",
    "command_line": ["iommu=pt", "quiet", "ro"],
    "iommu": "pt",
    "bios_version": "2.1",
    "bios_date": "2024-05-17",
    "numa_nodes": 2,
    "governors": ["performance"],
    "swap_bytes": 0,
    "hugepages_2m": 4096,
    "hugepages_1g": 0,
    "transparent_hugepages": "madvise",
    "numa_balancing": False,
    "rdma_core_version": "1.14.44.0",
    "has_gpu_peer_memory": True,
    "cwdp_version": "0.1.0",
    "clock_source": "tsc",
    "clock_daemons": ["chronyd"],
    "clock_synchronised": True,
    "acs_bridges": [],
    "dns_servers": ["10.0.0.53", "10.0.1.53"],
    "default_routes": ["ipv4 eth0"],
    "rp_filter": 2,
    "arp_ignore": 1,
    "arp_announce": 2,
}


@dataclass(frozen=True)
class Nic:
    """A kind of NIC in a host: how many, under which names, with which facts."""

    count: int
    name: str
    role: str
    facts: Facts
    rdma: str = ""
    rdma_facts: Facts = field(default_factory=dict)
    has_module: bool = True
    missing: dict[str, str] = field(default_factory=dict)
    rdma_missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind of host; `gpus` GPUs with `gpu` facts each. `missing` are facts that none of the kind can tell."""

    name: str
    host: Facts
    nics: tuple[Nic, ...]
    gpus: int = 0
    gpu: Facts = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    gpu_missing: dict[str, str] = field(default_factory=dict)


_CX7 = Nic(
    8,
    "rail",
    "back",
    {
        **_LINK, **_LOSSLESS, **_COUNTED, **_PCIE5,
        "driver": "mlx5_core",
        "driver_version": "23.10-1.1.9",
        "firmware": "28.39.1002 (MT_0000000838)",
        "firmware_stored": "28.39.1002",
        "device": "15b3:1021 15b3:0041",
        "mtu_bytes": 9000,
        "speed_bps": 400_000_000_000,
        "fec": "rs",
        "ring_rx": 8192,
        "ring_rx_max": 8192,
        "channels": 63,
        "eswitch_mode": "legacy",
        "module": "NVIDIA MMA4Z00-NS400",
    },
    "mlx5",
    {
        **_RDMA,
        "board": "MT_0000000838",
        "firmware": "28.39.1002",
        "device_type": "MT4129",
        "rate_bps": 400_000_000_000,
    },
)  # fmt: skip
_CX6 = Nic(
    1,
    "eth",
    "front",
    {
        **_LINK, **_COUNTED, **_PCIE5,
        "pcie_gtps": 16.0,
        "pcie_gtps_max": 16.0,
        "driver": "mlx5_core",
        "driver_version": "23.10-1.1.9",
        "firmware": "22.39.1002 (MT_0000000359)",
        "firmware_stored": "22.39.1002",
        "device": "15b3:101d 15b3:0058",
        "pause_rx": True,
        "pause_tx": True,
        "mtu_bytes": 1500,
        "speed_bps": 100_000_000_000,
        "fec": "rs",
        "ring_rx": 1024,
        "ring_rx_max": 8192,
        "channels": 63,
        "eswitch_mode": "legacy",
        "module": "NVIDIA MCP1600-C001",
    },
    has_module=False,
)  # fmt: skip
H100 = Kind(
    "h100",
    {
        **_METAL,
        "product": "Supermicro SYS-821GE-TNHR",
        "cpu_model": "Intel(R) Xeon(R) Platinum 8480+",
        "cpus": 224,
        "memory_bytes": 2048 * GIB,
        "modules": ["ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia", "nvidia_peermem"],
        "ofed_version": "23.10-1.1.9",
        "gpu_driver": "550.54.15",
    },
    (_CX6, _CX7),
    8,
    {
        "product": "NVIDIA H100 80GB HBM3",
        "vbios": "96.00.89.00.01",
        "pcie_gtps_max": 32.0,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "persistence": True,
        "has_ecc": True,
        "ecc_uncorrected": 0,
        "rows_pending": False,
        "rows_failed": False,
        "nvlinks": 18,
        "nvlinks_max": 18,
        "nvlink_errors": 0,
        "throttled_by": [],
        "power_limit_w": 700.0,
    },
)
_THOR2 = Nic(
    8,
    "rail",
    "back",
    {
        **_LINK, **_COUNTED, **_PCIE5,
        **{name: value for name, value in _LOSSLESS.items() if name not in ("trust", "ecn_receiver", "ecn_sender")},
        "driver": "bnxt_en",
        "driver_version": "1.10.3-231.0.162.0",
        "firmware": "231.2.63.0/pkg 231.1.162.1",
        "firmware_stored": "231.1.162.1",
        "device": "14e4:1760 14e4:0d11",
        "pcie_read_request_bytes": 2048,
        "mtu_bytes": 9000,
        "speed_bps": 400_000_000_000,
        "fec": "rs",
        "ring_rx": 2047,
        "ring_rx_max": 2047,
        "channels": 74,
        "module": "BROADCOM AFCT-91DRDHZ",
    },
    "bnxt_re",
    {**_RDMA, "firmware": "231.2.63.0", "device_type": "BCM57608", "rate_bps": 400_000_000_000},
)  # fmt: skip
_X710 = Nic(
    1,
    "eth",
    "front",
    {
        **_LINK, **_COUNTED, **_PCIE3,
        "pcie_width": 8,
        "pcie_width_max": 8,
        "driver": "i40e",
        "driver_version": "6.1.0-26-amd64",
        "firmware": "9.20 0x8000d8c5 22.0.9",
        "device": "8086:1572 8086:0001",
        "pause_rx": False,
        "pause_tx": False,
        "mtu_bytes": 1500,
        "speed_bps": 10_000_000_000,
        "ring_rx": 512,
        "ring_rx_max": 4096,
        "channels": 64,
    },
    has_module=False,
)  # fmt: skip
MI300X = Kind(
    "mi300x",
    {
        **_METAL,
        "product": "Dell Inc. PowerEdge XE9680",
        "cpu_model": "AMD EPYC 9654 96-Core Processor",
        "cpus": 192,
        "memory_bytes": 2304 * GIB,
        "modules": ["amdgpu", "bnxt_en", "bnxt_re", "ib_uverbs"],
        "gpu_driver": "6.7.0",
    },
    (_X710, _THOR2),
    8,
    {
        "product": "AMD Instinct MI300X OAM",
        "vbios": "113-M3000100-102",
        "pcie_gtps_max": 32.0,
        "pcie_width": 16,
        "pcie_width_max": 16,
    },
    gpu_missing=dict.fromkeys(
        ("persistence", "has_ecc", "ecc_uncorrected", "rows_pending", "rows_failed", "throttled_by"),
        "not read of AMD's GPUs",
    ),
)
_CX5 = Nic(
    2,
    "bp",
    "back",
    {
        **_LINK, **_LOSSLESS, **_COUNTED, **_PCIE3,
        "driver": "mlx5_core",
        "driver_version": "6.1.0-26-amd64",
        "firmware": "16.35.2000 (MT_0000000008)",
        "firmware_stored": "16.35.2000",
        "device": "15b3:1017 15b3:0007",
        "master": "bond0",
        "bond_mode": "802.3ad",
        "mtu_bytes": 9000,
        "speed_bps": 100_000_000_000,
        "fec": "rs",
        "ring_rx": 1024,
        "ring_rx_max": 8192,
        "channels": 40,
        "module": "Mellanox MCP1600-C003",
    },
    has_module=False,
)  # fmt: skip
_TG3 = Nic(
    1,
    "eth",
    "front",
    {
        **_LINK, **_COUNTED, **_PCIE3,
        "pcie_gtps": 5.0,
        "pcie_gtps_max": 5.0,
        "pcie_width": 1,
        "pcie_width_max": 1,
        "irqs": 5,
        "driver": "tg3",
        "driver_version": "6.1.0-26-amd64",
        "firmware": "FFV21.40.2 bc 5720-v1.39",
        "device": "14e4:165f 1028:08d3",
        "pause_rx": True,
        "pause_tx": True,
        "mtu_bytes": 1500,
        "speed_bps": 1_000_000_000,
        "ring_rx": 200,
        "ring_rx_max": 2047,
        "channels": 4,
    },
    "mlx5_bond",
    {
        **_RDMA,
        "netdev": "bond0",
        "board": "MT_0000000008",
        "firmware": "16.35.2000",
        "device_type": "MT4119",
        "rate_bps": 100_000_000_000,
    },
    has_module=False,
)  # fmt: skip
V100 = Kind(
    "v100",
    {
        **_METAL,
        "product": "Dell Inc. PowerEdge C4140",
        "cpu_model": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
        "cpus": 80,
        "memory_bytes": 384 * GIB,
        "iommu": "off",
        "modules": ["bonding", "ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia", "nvidia_peermem"],
        "gpu_driver": "535.183.06",
        "arp_ignore": 0,
        "arp_announce": 0,
    },
    (_TG3, _CX5),
    4,
    {
        "product": "Tesla V100-SXM2-32GB",
        "vbios": "88.00.80.00.01",
        "pcie_gtps_max": 8.0,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "persistence": True,
        "has_ecc": True,
        "ecc_uncorrected": 0,
        "nvlinks": 6,
        "nvlinks_max": 6,
        "nvlink_errors": 0,
        "throttled_by": [],
        "power_limit_w": 300.0,
    },
)
_NOT_OF_VIRTIO = (
    *("firmware", "firmware_stored", "speed_bps", "duplex", "fec", "pause_rx", "pause_tx", "trust"),
    *("pfc_priorities", "ets_algorithms", "ets_percent", "priority_classes", "dscp_priorities"),
    *("module_temperature_c", "module_rx_power_dbm", "pcie_width", "pcie_gtps", "pcie_read_request_bytes"),
)
_VIRTIO = Nic(
    1,
    "ens",
    "front",
    {
        "is_up": True,
        "has_carrier": True,
        "driver": "virtio_net",
        "driver_version": "1.0.0",
        "device": "1af4:1041 1af4:1100",
        "mtu_bytes": 1500,
        "channels": 8,
        "ring_rx": 256,
        "ring_rx_max": 256,
        "offloads": _OFFLOADS,
        "growing_errors": [],
        "rx_errors": 0,
        "rx_crc_errors": 0,
        "tx_errors": 0,
    },
    "rxe",
    {
        "state": "ACTIVE",
        "physical_state": "LinkUp",
        "link_layer": "Ethernet",
        "gids_v2": 2,
        "roce_mode": "RoCE v2",
        "device_type": "rxe",
        "growing_errors": [],
    },
    has_module=False,
    missing=dict.fromkeys(_NOT_OF_VIRTIO, "the driver does not tell"),
    rdma_missing={"firmware": "the driver does not tell", "roce_tos": "configfs has no folder of rdma_cm"},
)


CLOUD = Kind(
    "cloud",
    {
        **{
            name: value
            for name, value in _METAL.items()
            if name not in ("governors", "numa_balancing", "has_gpu_peer_memory", "bios_version", "bios_date")
        },
        "product": "QEMU Standard PC (Q35 + ICH9, 2009)",
        "cpu_model": "AMD EPYC Processor (with IBPB)",
        "cpus": 16,
        "numa_nodes": 1,
        "memory_bytes": 64 * GIB,
        "iommu": "off",
        "clock_source": "kvm-clock",
        "modules": ["ib_uverbs", "rdma_rxe"],
        "hugepages_2m": 0,
        "rp_filter": 0,
        "arp_ignore": 0,
        "arp_announce": 0,
    },
    (_VIRTIO,),
    missing={"bios_version": "the firmware has no DMI", "governors": "the kernel governs no frequency"},
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (H100, MI300X, V100, CLOUD)}
