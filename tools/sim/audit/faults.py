"""What may be wrong with one host of a fleet, and which checks may name it: at least one must, and no others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from cwdp.shared.audit.facts import HostFacts, Subject, Value

ABSENT = None
"""In the place of a value: the fact is not told."""


@dataclass(frozen=True)
class Fault:
    """A fault of one subject, or of a part that is gone.

    Attributes:
        kind: of the subject that has it.
        facts: as they are with it, by their short names.
        checks: that may name it.
        role: of the subject; any where it is empty.
        without: the subject itself is gone; its host is to blame.
        also: facts of the RDMA port of the NIC, where that shows it too.
        needs: facts that the subject must have for it.
    """

    kind: str
    facts: Mapping[str, Value | None]
    checks: frozenset[str]
    role: str = ""
    without: bool = False
    also: Mapping[str, Value | None] = field(default_factory=dict)
    needs: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Seeded:
    """A fault as it was put into a fleet: of which host, and of which of its subjects."""

    name: str
    host: str
    subjects: frozenset[str]
    checks: frozenset[str]


def _of(kind: str, facts: Mapping[str, Value | None], *checks: str, **more: object) -> Fault:
    return Fault(kind, facts, frozenset(checks), **more)  # type: ignore[arg-type]


_MLX5 = {"driver": "mlx5_core"}
_DOWN = {"has_carrier": False, "speed_bps": ABSENT, "duplex": ABSENT, "fec": ABSENT}

FAULTS: Mapping[str, Fault] = {
    "pcie at half width": _of("nic", {"pcie_width": 8}, "pcie-width", needs={"pcie_width_max": 16}),
    "pcie at lower speed": _of("nic", {"pcie_gtps": 2.5}, "pcie-speed", "pcie-speed-alike", role="back"),
    "small read requests": _of(
        "nic", {"pcie_read_request_bytes": 128}, "pcie-read-request", "pcie-read-request-alike", role="back"
    ),
    "small payload": _of("nic", {"pcie_payload_bytes": 128}, "pcie-payload-alike", role="back"),
    "pcie errors": _of("nic", {"pcie_errors": 250_000}, "pcie-errors", role="back"),
    "acs on": _of("host", {"acs_bridges": ["0000:10:01.0"]}, "acs-off"),
    "irqs off node": _of("nic", {"irqs_off_node": 12}, "irqs-on-node", role="back"),
    "few irqs": _of("nic", {"irqs": 2}, "irqs-alike", role="back"),
    "another mtu": _of("nic", {"mtu_bytes": 1500}, "mtu-alike", "mtu-for-roce", role="back"),
    "another mtu in front": _of("nic", {"mtu_bytes": 1450}, "mtu-alike", role="front"),
    "old firmware": _of("nic", {"firmware": "16.28.1002 (MT_0000000838)"}, "firmware-alike", role="back"),
    "firmware waits for a reset": _of(
        "nic", {"firmware_stored": "99.1.1"}, "firmware-stored-alike", role="back"
    ),
    "another driver": _of("nic", {"driver": "vfio-pci"}, "driver-alike", role="back"),
    "old driver": _of("nic", {"driver_version": "5.8-1.0.1"}, "driver-version-alike", role="back"),
    "fec off": _of("nic", {"fec": "off"}, "fec-on", "fec-alike", role="back"),
    "pfc on another priority": _of("nic", {"pfc_priorities": [4]}, "pfc-alike", role="back"),
    "pfc off": _of("nic", {"pfc_priorities": []}, "pfc-alike", role="back"),
    "pause on": _of("nic", {"pause_rx": True}, "pause-rx-alike", role="back"),
    "no dscp map": _of("nic", {"dscp_priorities": []}, "dscp-alike", "dscp-of-roce", role="back"),
    "trusts pcp": _of("nic", {"trust": "pcp"}, "trust-alike", role="back", needs=_MLX5),
    "ecn off at the receiver": _of(
        "nic", {"ecn_receiver": []}, "ecn-receiver-alike", role="back", needs=_MLX5
    ),
    "ecn off at the sender": _of("nic", {"ecn_sender": []}, "ecn-sender-alike", role="back", needs=_MLX5),
    "another share of the port": _of(
        "nic", {"ets_percent": [12, 12, 12, 12, 13, 13, 13, 13]}, "ets-percent-alike", role="back"
    ),
    "all classes strict": _of("nic", {"ets_algorithms": ["strict"] * 8}, "ets-algorithms-alike", role="back"),
    "one class for all": _of("nic", {"priority_classes": [0] * 8}, "priority-classes-alike", role="back"),
    "small ring": _of("nic", {"ring_rx": 64}, "ring-rx-alike"),
    "few channels": _of("nic", {"channels": 1}, "channels-alike"),
    "no checksums": _of("nic", {"offloads": ["scatter-gather"]}, "offloads-alike"),
    "lower speed": _of(
        "nic", {"speed_bps": 25_000_000_000}, "speed-alike", role="back", also={"rate_bps": 25_000_000_000}
    ),
    "half duplex": _of("nic", {"duplex": "half"}, "full-duplex", needs={"duplex": "full"}),
    "no autonegotiation": _of(
        "nic", {"autonegotiation": False}, "autonegotiation-alike", needs={"autonegotiation": True}
    ),
    "set down": _of("nic", {"is_up": False}, "nic-up", role="back"),
    "no carrier": _of(
        "nic", _DOWN, "nic-carrier", role="back", also={"state": "DOWN", "physical_state": "Disabled"}
    ),
    "flapping": _of("nic", {"carrier_changes": 4711}, "carrier-changes"),
    "no address": _of("nic", {"addresses": []}, "addresses-alike"),
    "a route is missing": _of("nic", {"routes": ["10.0.0.0/16"]}, "routes-alike"),
    "another bond mode": _of(
        "nic", {"bond_mode": "active-backup"}, "bond-mode-alike", needs={"bond_mode": "802.3ad"}
    ),
    "hot transceiver": _of(
        "nic", {"module_temperature_c": 88.5}, "module-temperature", needs={"speed_bps": 400_000_000_000}
    ),
    "little light": _of(
        "nic",
        {"module_rx_power_dbm": [0.5, 0.4, -13.2, 0.6]},
        "module-rx-power",
        needs={"speed_bps": 400_000_000_000},
    ),
    "errors grow": _of("nic", {"growing_errors": ["rx_crc_errors"]}, "nic-errors-growing"),
    "many bad checksums": _of("nic", {"rx_crc_errors": 99_999}, "crc-errors"),
    "rdma errors grow": _of("rdma", {"growing_errors": ["local_ack_timeout_err"]}, "rdma-errors-growing"),
    "no gid": _of("rdma", {"gids_v2": 0}, "rdma-gids", "rdma-gids-alike"),
    "roce v1": _of("rdma", {"roce_mode": "IB/RoCE v1"}, "roce-v2"),
    "another tos": _of("rdma", {"roce_tos": 0}, "roce-tos-alike", needs={"roce_tos": 106}),
    "another traffic class": _of(
        "rdma", {"traffic_class": -1}, "traffic-class-alike", needs={"traffic_class": 106}
    ),
    "port not active": _of("rdma", {"state": "INIT"}, "rdma-active", role="back"),
    "no rdma device": _of("rdma", {}, "rdma-ports-alike", without=True),
    "a nic is gone": _of(
        "nic", {}, "back-nics-alike", "nic-devices-alike", "rdma-ports-alike", role="back", without=True
    ),
    "a gpu is gone": _of("gpu", {}, "gpus-alike", without=True),
    "an nvlink is missing": _of("gpu", {"nvlinks": 5}, "nvlinks", needs={"persistence": True}),
    "nvlink errors": _of("gpu", {"nvlink_errors": 123_456}, "nvlink-errors", needs={"persistence": True}),
    "ecc off": _of("gpu", {"has_ecc": False}, "gpu-ecc"),
    "ecc errors": _of("gpu", {"ecc_uncorrected": 3}, "gpu-ecc-errors"),
    "gpu at half width": _of("gpu", {"pcie_width": 8}, "gpu-pcie-width"),
    "no persistence": _of("gpu", {"persistence": False}, "gpu-persistence", needs={"persistence": True}),
    "a row failed": _of("gpu", {"rows_failed": True}, "gpu-rows-failed", needs={"rows_failed": False}),
    "throttled by heat": _of("gpu", {"throttled_by": ["hw_thermal_slowdown"]}, "gpu-not-throttled"),
    "lower power limit": _of("gpu", {"power_limit_w": 250.0}, "gpu-power-limit-alike"),
    "old vbios": _of("gpu", {"vbios": "90.00.00.00.01"}, "gpu-vbios-alike"),
    "another kernel": _of("host", {"kernel_release": "5.15.0-91-generic"}, "kernel-alike"),
    "another bios": _of("host", {"bios_version": "1.0"}, "bios-alike"),
    "iommu translates": _of("host", {"iommu": "translating"}, "iommu-passes-through", "iommu-alike"),
    "aer is hidden": _of("host", {"command_line": ["pci=noaer", "ro"]}, "command-line-hides-no-errors"),
    "powersave": _of(
        "host",
        {"governors": ["powersave"]},
        "governor-performance",
        needs={"governors": ["performance"]},
    ),
    "processors offline": _of("host", {"cpus": 7}, "cpus-alike"),
    "a memory module is missing": _of("host", {"memory_bytes": 48 << 30}, "memory-alike"),
    "no huge pages": _of("host", {"hugepages_2m": 0}, "hugepages-2m-alike", needs={"hugepages_2m": 4096}),
    "numa balancing": _of(
        "host", {"numa_balancing": True}, "numa-balancing-off", needs={"numa_balancing": False}
    ),
    "no peer memory": _of(
        "host", {"has_gpu_peer_memory": False}, "gpu-peer-memory", needs={"has_gpu_peer_memory": True}
    ),
    "a module is missing": _of("host", {"modules": ["ib_uverbs"]}, "modules-alike"),
    "old gpu driver": _of("host", {"gpu_driver": "1.2.3"}, "gpu-driver-alike"),
    "hpet": _of("host", {"clock_source": "hpet"}, "clock-source", "clock-source-alike"),
    "not synchronised": _of("host", {"clock_synchronised": False}, "clock-synchronised"),
    "two clock daemons": _of("host", {"clock_daemons": ["chronyd", "ntpd"]}, "clock-daemons-alike"),
    "strict rp_filter": _of("host", {"rp_filter": 1}, "rp-filter-not-strict", "rp-filter-alike"),
    "other name servers": _of("host", {"dns_servers": ["192.0.2.1"]}, "dns-alike"),
    "default route by a rail": _of("host", {"default_routes": ["ipv4 rail3"]}, "default-routes-alike"),
}


def can_have(fault: Fault, facts: HostFacts) -> bool:
    """Whether a host has a subject that may have this fault."""
    return bool(_candidates(fault, facts))


def seed_fault(fleet: Sequence[HostFacts], name: str, rng: Random) -> tuple[list[HostFacts], Seeded]:
    """A fleet with one fault somewhere, and where.

    Raises:
        ValueError: no host can have it.
    """
    fault = FAULTS[name]
    places = [place for place, facts in enumerate(fleet) if can_have(fault, facts)]
    if not places:
        raise ValueError(f"no host can have: {name}")
    place = rng.choice(places)
    facts = fleet[place]
    chosen = rng.choice(_candidates(fault, facts))
    broken, subjects = _broken(fault, facts, chosen)
    changed = [*fleet[:place], broken, *fleet[place + 1 :]]
    return changed, Seeded(name, facts.host, subjects, fault.checks | _shown_by_port(fault))


def _shown_by_port(fault: Fault) -> frozenset[str]:
    checks = {"state": "rdma-active", "physical_state": "rdma-link-up", "rate_bps": "rdma-rate-alike"}
    return frozenset(checks[name] for name in fault.also)


def _candidates(fault: Fault, facts: HostFacts) -> list[int]:
    return [
        place
        for place, subject in enumerate(facts.subjects)
        if subject.kind == fault.kind
        and (not fault.role or subject.role == fault.role)
        and all(name in subject.facts for name in fault.facts)
        and all(subject.facts.get(name) == value for name, value in fault.needs.items())
        and any(subject.facts.get(name) != value for name, value in fault.facts.items()) | fault.without
    ]


def _broken(fault: Fault, facts: HostFacts, place: int) -> tuple[HostFacts, frozenset[str]]:
    subject = facts.subjects[place]
    own_port = next((each for each in facts.subjects if each.facts.get("netdev") == subject.name), None)
    if fault.without:
        gone = [subject] if own_port is None else [subject, own_port]
        left = [each for each in facts.subjects if not any(each is one for one in gone)]
        return replace(facts, subjects=left), frozenset({""})
    subjects = list(facts.subjects)
    subjects[place] = _changed(subject, fault.facts)
    names = {subject.name}
    if fault.also and own_port is not None:
        subjects[subjects.index(own_port)] = _changed(own_port, fault.also)
        names.add(own_port.name)
    return replace(facts, subjects=subjects), frozenset(names)


def _changed(subject: Subject, facts: Mapping[str, Value | None]) -> Subject:
    changed = {**subject.facts, **{name: value for name, value in facts.items() if value is not ABSENT}}
    for name, value in facts.items():
        if value is ABSENT:
            changed.pop(name, None)
    return replace(subject, facts=changed)
