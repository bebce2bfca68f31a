"""Faults seeded into recorded trees, one file of one host changed: each is found and named, and nobody else is accused.

Eleven hosts of a kind are read from the same tree, and a twelfth from one with the fault; from file to verdict.
"""

import asyncio
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from cwdp.audit.collecting import Wanted, collect
from cwdp.shared.audit.facts import HostFacts
from manager.audit.checks.loading import load_checks
from manager.audit.judging.judge import judge
from manager.audit.results import Result
from manager.audit.today import today
from tests.unit.audit import audit_trees

BAD = "bad"
LIKE = tuple(f"like{i}" for i in range(1, 12))
WRONG = ("fail", "outlier", "warn", "divided")

Edit = Callable[[Path], None]


class Fault(NamedTuple):
    """What is done to the tree of a kind of host, and which check names which part of it."""

    machine: str
    edit: Edit
    check: str
    subject: str = ""


def _file(path: str, new: str, old: str | None = None) -> Edit:
    """Another content, or in its place; the path is a pattern that exactly one file fits."""

    def edit(root: Path) -> None:
        (found,) = root.glob(path)
        text = found.read_text()
        assert old is None or old in text, text
        found.write_text(new if old is None else text.replace(old, new, 1))

    return edit


def _answer(path: str, change: Callable[[Any], None]) -> Edit:
    def edit(root: Path) -> None:
        found = root / "answers" / f"{path}.json"
        told = json.loads(found.read_text())
        change(told)
        found.write_text(json.dumps(told))

    return edit


def _set(*keys: Any, to: Any) -> Callable[[Any], None]:
    def change(told: Any) -> None:
        for key in keys[:-1]:
            told = told[key]
        assert told[keys[-1]] != to
        told[keys[-1]] = to

    return change


def _link(name: str, key: str, to: Any) -> Edit:
    def change(told: Any) -> None:
        (link,) = (link for link in told["links"] if link["name"] == name)
        link[key] = to

    return _answer("links", change)


NIC = "sys/devices/*/*/0000:40:00.0"
"""Of rail1, with mlx5_1."""

FAULTS = {
    "width": Fault("h100", _file(f"{NIC}/current_link_width", "8\n"), "pcie-width", "rail1"),
    "speed": Fault(
        "h100", _file(f"{NIC}/current_link_speed", "16.0 GT/s PCIe\n"), "pcie-speed-alike", "rail1"
    ),
    "pcie errors": Fault(
        "h100",
        _file(f"{NIC}/aer_dev_correctable", "TOTAL_ERR_COR 90000", "TOTAL_ERR_COR 0"),
        "pcie-errors",
        "rail1",
    ),
    "another device": Fault("h100", _file(f"{NIC}/device", "0x101d\n"), "nic-devices-alike"),
    "half rate": Fault(
        "h100",
        _answer("ethtool/rail1", _set("numbers", "linkmodes.speed_mbps", to=200_000)),
        "speed-alike",
        "rail1",
    ),
    "half duplex": Fault(
        "h100", _answer("ethtool/rail1", _set("numbers", "linkmodes.duplex", to=0)), "full-duplex", "rail1"
    ),
    "no autonegotiation": Fault(
        "h100",
        _answer("ethtool/rail1", _set("numbers", "linkmodes.autonegotiation", to=0)),
        "autonegotiation-alike",
        "rail1",
    ),
    "pause": Fault(
        "h100", _answer("ethtool/rail1", _set("numbers", "pause.rx", to=1)), "pause-rx-alike", "rail1"
    ),
    "small rings": Fault(
        "h100", _answer("ethtool/rail1", _set("numbers", "rings.rx", to=128)), "ring-rx-alike", "rail1"
    ),
    "few channels": Fault(
        "h100",
        _answer("ethtool/rail1", _set("numbers", "channels.combined", to=1)),
        "channels-alike",
        "rail1",
    ),
    "an offload off": Fault(
        "h100",
        _answer("ethtool/rail1", lambda told: told["features"].remove("rx-checksum")),
        "offloads-alike",
        "rail1",
    ),
    "mtu": Fault("h100", _link("rail1", "mtu", 1500), "mtu-alike", "rail1"),
    "flapping": Fault("h100", _link("rail1", "carrier_changes", 400), "carrier-changes", "rail1"),
    "old firmware": Fault(
        "h100",
        _answer("driver/rail1", _set("firmware", to="28.39.1002 (MT_0000000838)")),
        "firmware-alike",
        "rail1",
    ),
    "another driver version": Fault(
        "h100", _answer("driver/rail1", _set("version", to="5.15.0")), "driver-version-alike", "rail1"
    ),
    "pfc": Fault("h100", _answer("dcb/rail1", _set("pfc", to=16)), "pfc-alike", "rail1"),
    "ets": Fault(
        "h100",
        _answer("dcb/rail1", _set("percent", to=[80, 0, 0, 20, 0, 0, 0, 0])),
        "ets-percent-alike",
        "rail1",
    ),
    "dscp": Fault(
        "h100", _answer("dcb/rail1", lambda told: told["applications"].pop(0)), "dscp-alike", "rail1"
    ),
    "trust": Fault("h100", _file(f"{NIC}/net/rail1/qos/trust", "pcp\n"), "trust-alike", "rail1"),
    "no marks answered": Fault(
        "h100", _file(f"{NIC}/net/rail1/ecn/roce_np/enable/3", "0\n"), "ecn-receiver-alike", "rail1"
    ),
    "marks not heeded": Fault(
        "h100", _file(f"{NIC}/net/rail1/ecn/roce_rp/enable/3", "0\n"), "ecn-sender-alike", "rail1"
    ),
    "switchdev": Fault(
        "h100", _answer("devlink/0000:40:00.0", _set("eswitch_mode", to=1)), "eswitch-alike", "rail1"
    ),
    "firmware not reset": Fault(
        "h100",
        _answer(
            "devlink/0000:40:00.0",
            lambda told: told["stored"].update({"fw.version": "28.44.1", "fw": "28.44.1"}),
        ),
        "firmware-stored-alike",
        "rail1",
    ),
    "port down": Fault(
        "h100", _file(f"{NIC}/infiniband/mlx5_1/ports/1/state", "1: DOWN\n"), "rdma-active", "mlx5_1/1"
    ),
    "port at half rate": Fault(
        "h100",
        _file(f"{NIC}/infiniband/mlx5_1/ports/1/rate", "200 Gb/sec (4X HDR)\n"),
        "rdma-rate-alike",
        "mlx5_1/1",
    ),
    "rdma firmware": Fault(
        "h100", _file(f"{NIC}/infiniband/mlx5_1/fw_ver", "28.39.1002\n"), "rdma-firmware-alike", "mlx5_1/1"
    ),
    "another board": Fault(
        "h100", _file(f"{NIC}/infiniband/mlx5_1/board_id", "MT_0000000999\n"), "board-alike", "mlx5_1/1"
    ),
    "traffic class": Fault(
        "h100",
        _file(f"{NIC}/infiniband/mlx5_1/tc/1/traffic_class", "Global tclass=0\n"),
        "traffic-class-alike",
        "mlx5_1/1",
    ),
    "roce v1": Fault(
        "h100",
        _file("sys/kernel/config/rdma_cm/mlx5_1/ports/1/default_roce_mode", "IB/RoCE v1\n"),
        "roce-v2",
        "mlx5_1/1",
    ),
    "kernel": Fault("h100", _answer("uname", _set("release", to="5.15.0-1050-nvidia")), "kernel-alike"),
    "bios": Fault("h100", _file("sys/class/dmi/id/bios_version", "1.0.0\n"), "bios-alike"),
    "iommu": Fault("h100", _file("sys/kernel/iommu_groups/0/type", "DMA\n"), "iommu-passes-through"),
    "governor": Fault(
        "h100",
        _file("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n"),
        "governor-performance",
    ),
    "numa balancing": Fault("h100", _file("proc/sys/kernel/numa_balancing", "1\n"), "numa-balancing-off"),
    "hugepages": Fault(
        "h100",
        _file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "77\n"),
        "hugepages-2m-alike",
    ),
    "no peer memory": Fault(
        "h100",
        _file("proc/modules", "", "nvidia_peermem 16384 0 - Live 0x0000000000000000\n"),
        "gpu-peer-memory",
    ),
    "gpu driver": Fault("h100", _answer("gpus", _set("driver", to="535.10.07")), "gpu-driver-alike"),
    "clock source": Fault(
        "h100",
        _file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
        "clock-source",
    ),
    "clock not synchronised": Fault(
        "h100", _answer("kernelclock", _set("state", to=5)), "clock-synchronised"
    ),
    "strict rp_filter": Fault(
        "h100", _file("proc/sys/net/ipv4/conf/all/rp_filter", "1\n"), "rp-filter-not-strict"
    ),
    "arp": Fault("h100", _file("proc/sys/net/ipv4/conf/all/arp_announce", "0\n"), "arp-announce-alike"),
    "name servers": Fault("h100", _file("etc/resolv.conf", "10.9.9.9", "10.0.0.53"), "dns-alike"),
    "a gpu's nvlink": Fault(
        "h100", _answer("gpus", _set("gpus", 3, "values", "nvlinks", 7, to=0)), "nvlinks", "3"
    ),
    "a gpu's width": Fault(
        "h100", _answer("gpus", _set("gpus", 3, "values", "pcie_width", to=8)), "gpu-pcie-width", "3"
    ),
    "a gpu without ecc": Fault(
        "h100", _answer("gpus", _set("gpus", 3, "values", "ecc", to=0)), "gpu-ecc", "3"
    ),
    "a gpu's errors": Fault(
        "h100", _answer("gpus", _set("gpus", 3, "values", "ecc_uncorrected", to=4)), "gpu-ecc-errors", "3"
    ),
    "a gpu's power": Fault(
        "h100",
        _answer("gpus", _set("gpus", 3, "values", "power_limit_mw", to=400_000)),
        "gpu-power-limit-alike",
        "3",
    ),
    "a gpu is gone": Fault("h100", _answer("gpus", lambda told: told["gpus"].pop(3)), "gpus-alike"),
    "mi300x: kernel": Fault("mi300x", _answer("uname", _set("release", to="6.1.0")), "kernel-alike"),
    "mi300x: mtu": Fault("mi300x", _link("gpu2_eth", "mtu", 1500), "mtu-alike", "gpu2_eth"),
    "v100: one slave slow": Fault("v100", _link("ens1f0", "mtu", 9000), "mtu-alike", "ens1f0"),
    "v100: bios": Fault("v100", _file("sys/class/dmi/id/bios_version", "0.0.1\n"), "bios-alike"),
    "cloud: kernel": Fault("cloud", _answer("uname", _set("release", to="6.1.0-1")), "kernel-alike"),
    "cloud: mtu": Fault("cloud", _link("ens5", "mtu", 1400), "mtu-alike", "ens5"),
    "infiniband: state": Fault(
        "infiniband",
        _file("sys/devices/pci0000:3c/0000:3c:00.0/infiniband/mlx5_1/ports/1/state", "2: INIT\n"),
        "infiniband-active",
        "mlx5_1/1",
    ),
    "infiniband: link": Fault(
        "infiniband",
        _file("sys/devices/pci0000:3c/0000:3c:00.0/infiniband/mlx5_1/ports/1/phys_state", "2: Polling\n"),
        "infiniband-link-up",
        "mlx5_1/1",
    ),
    "infiniband: no subnet manager": Fault(
        "infiniband",
        _file("sys/devices/pci0000:3c/0000:3c:00.0/infiniband/mlx5_1/ports/1/sm_lid", "0x0\n"),
        "infiniband-subnet-manager",
        "mlx5_1/1",
    ),
    "infiniband: one lid": Fault(
        "infiniband",
        _file("sys/devices/pci0000:3c/0000:3c:00.0/infiniband/mlx5_1/ports/1/lid_mask_count", "0\n"),
        "infiniband-lmc",
        "mlx5_1/1",
    ),
    "infiniband: fewer lids": Fault(
        "infiniband",
        _file("sys/devices/pci0000:3c/0000:3c:00.0/infiniband/mlx5_1/ports/1/lid_mask_count", "1\n"),
        "infiniband-lmc-alike",
        "mlx5_1/1",
    ),
    "infiniband: rate": Fault(
        "infiniband",
        _file("sys/devices/pci0000:3c/0000:3c:00.0/infiniband/mlx5_1/ports/1/rate", "200 Gb/sec (4X HDR)\n"),
        "rdma-rate-alike",
        "mlx5_1/1",
    ),
    "infiniband: firmware": Fault(
        "infiniband",
        _file("sys/devices/pci0000:3c/0000:3c:00.0/infiniband/mlx5_1/fw_ver", "28.39.1002\n"),
        "rdma-firmware-alike",
        "mlx5_1/1",
    ),
    "infiniband: board": Fault(
        "infiniband",
        _file("sys/devices/pci0000:3c/0000:3c:00.0/infiniband/mlx5_1/board_id", "MT_0000000834\n"),
        "board-alike",
        "mlx5_1/1",
    ),
}


def _read(name: str, root: Path) -> HostFacts:
    facts = asyncio.run(collect(Wanted(host=name, root=str(root))))
    assert facts.troubles == {}
    return facts


@cache
def _like(machine: str) -> tuple[HostFacts, ...]:
    """Hosts that are read from the same tree."""
    with TemporaryDirectory() as folder:
        facts = _read(LIKE[0], audit_trees.write(machine, Path(folder) / machine))
    return tuple(replace(facts, host=name) for name in LIKE)


@cache
def _wrong_before(machine: str) -> set[tuple[str, str, str]]:
    """What is wrong on a host as it was recorded."""
    like = _like(machine)
    return _wrong((*like, replace(like[0], host=BAD)))


def _wrong(hosts: tuple[HostFacts, ...]) -> set[tuple[str, str, str]]:
    """What is wrong on the last host, or of the group."""
    audit = judge(load_checks(), hosts, today=today())
    own: list[Result] = [one for one in audit.results if one.verdict in WRONG and one.host not in LIKE]
    return {(one.check, one.host, one.subject) for one in own}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_tree_is_found_and_named(name: str, tmp_path: Path) -> None:
    machine, edit, check, subject = FAULTS[name]
    root = audit_trees.write(machine, tmp_path / BAD)
    edit(root)
    found = _wrong((*_like(machine), _read(BAD, root))) - _wrong_before(machine)
    shutil.rmtree(root)
    assert (check, BAD, subject) in found, found
    assert {host for _, host, _ in found} == {BAD}


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 40
    assert {fault.machine for fault in FAULTS.values()} == set(audit_trees.names())
