"""What the kernel and NVML answer, and what is made of it; on this machine, as root and as nobody else."""

import asyncio
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cwdp.audit import answers, growth
from cwdp.audit.areas import pcie
from cwdp.audit.collecting import CHILD, Wanted, collect
from cwdp.audit.kernel import dcb, devlink, ethtool, interfaces, nvml
from cwdp.audit.live import EACH, WHOLE, Live
from cwdp.audit.notes import Notes
from cwdp.audit.recorded import Recorded
from cwdp.audit.unreadable import Unreadable
from cwdp.dataplane.kernel.netlink import attribute
from cwdp.shared.audit.facts import HostFacts

CHANGING = {"carrier_changes", "growing_errors", "rx_errors", "rx_crc_errors", "tx_errors"}


def test_priority_flow_control_and_classes_of_dcb() -> None:
    ets = struct.pack(
        "3B8B8B8B8B", 1, 8, 0, 20, 0, 0, 80, 0, 0, 0, 0, *[0] * 8, 2, 2, 2, 2, 0, 1, 2, 255, *range(8)
    ).ljust(59, b"\0")
    pfc = struct.pack("=BBBHQQ", 8, 0b1000, 0, 0, 0, 0)
    table = attribute(1, struct.pack("=BBH", 5, 3, 26)) + attribute(1, struct.pack("=BBH", 1, 3, 0x8915))
    trust = attribute(3, b"\x05") + attribute(3, b"\x18")
    told = dcb.parse(attribute(1, ets) + attribute(2, pfc) + attribute(3, table) + attribute(11, trust))
    assert told == answers.Dcb(
        pfc=8,
        algorithms=[2, 2, 2, 2, 0, 1, 2, 255],
        percent=[20, 0, 0, 80, 0, 0, 0, 0],
        classes=list(range(8)),
        applications=[[5, 26, 3], [1, 0x8915, 3]],
        trust=[5, 24],
    )


def test_a_driver_that_tells_nothing_of_dcb() -> None:
    assert dcb.parse(b"") == answers.Dcb()
    assert dcb.parse(attribute(1, b"short")) == answers.Dcb()


def test_links_by_netlink() -> None:
    info = attribute(1, b"vlan\0") + attribute(4, b"bond\0")
    told = attribute(3, b"eth0.5\0") + attribute(4, b"\xdc\x05\0\0") + attribute(5, b"\x02\0\0\0")
    told += attribute(10, b"\x07\0\0\0") + attribute(18, info) + attribute(35, b"\x03\0\0\0")
    message = interfaces.IFINFOMSG.pack(0, 1, 9, 0x11043, 0) + told
    link = answers.Link(
        index=9,
        name="eth0.5",
        kind="vlan",
        port_kind="bond",
        master=7,
        lower=2,
        mtu=1500,
        flags=0x11043,
        carrier_changes=3,
    )
    assert interfaces._link(message) == link
    assert interfaces._link(message + attribute(37, b"\0\0\0\0")).lower == 0


def test_routes_by_netlink() -> None:
    hops = (
        struct.pack("=HBBi", 8, 0, 0, 3) + struct.pack("=HBBi", 16, 0, 1, 4) + attribute(5, b"\x0a\0\0\x01")
    )
    head = interfaces.RTMSG.pack(2, 16, 0, 0, 252, 3, 0, 1, 0)
    told = (
        attribute(1, b"\x0a\x63\0\0")
        + attribute(9, hops)
        + attribute(15, b"\xe9\x03\0\0")
        + attribute(6, b"\x07\0\0\0")
    )
    (route,) = interfaces._route(head + told)
    assert route == answers.Route(
        family=4, destination="10.99.0.0", prefix=16, interfaces=[3, 4], table=1001, metric=7
    )
    for other in (
        interfaces.RTMSG.pack(2, 0, 0, 0, 255, 2, 0, 2, 0),
        interfaces.RTMSG.pack(128, 0, 0, 0, 254, 2, 0, 1, 0),
    ):
        assert list(interfaces._route(other)) == []


@pytest.mark.parametrize(
    ("before", "now", "grown"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ["b"]),
        ({"a": 1}, {"a": 0}, []),
        ({"a": 5}, {"a": 2}, ["a"]),
        ({"a": 1}, {"a": 1, "new": 7}, []),
    ],
)
def test_counters_that_grow(before: dict[str, int], now: dict[str, int], grown: list[str]) -> None:
    notes = Notes("nic", "eth0")
    growth.note(notes, growth.First(0.0, {"nic eth0": before}), now)
    assert notes.facts == {"growing_errors": grown}


def test_counters_that_cannot_be_read() -> None:
    notes = Notes("nic", "eth0")
    growth.note(notes, growth.First(), {"a": 1})
    assert notes.missing == {"growing_errors": "no counters of errors are told"}


def test_versions_of_devlink_are_told_apart() -> None:
    def version(kind: int, name: bytes, value: bytes) -> bytes:
        return attribute(kind, attribute(103, name + b"\0") + attribute(104, value + b"\0"))

    info = version(101, b"fw.version", b"1") + version(102, b"fw.version", b"2") + version(102, b"fw", b"3")
    assert devlink.versions(info, devlink.RUNNING) == {"fw.version": "1"}
    assert devlink.versions(info, devlink.STORED) == {"fw.version": "2", "fw": "3"}


def test_features_of_ethtool_are_those_that_are_listed() -> None:
    bits = b"".join(
        attribute(1, attribute(1, struct.pack("=I", i)) + attribute(2, name + b"\0"))
        for i, name in enumerate((b"rx-gro", b"highdma"))
    )
    assert ethtool._features({4: attribute(1, b"") + attribute(3, bits)}) == ["highdma", "rx-gro"]
    assert ethtool._features({}) == []


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda: pcie.speed("16.0 GT/s PCIe"), 16.0),
        (lambda: pcie.speed("8 GT/s"), 8.0),
        (lambda: pcie.speed("Unknown speed"), "the device does not tell"),
        (lambda: pcie.speed("fast"), "not a speed: 'fast'"),
        (lambda: pcie.width("16"), 16),
        (lambda: pcie.width("0"), "the device does not tell"),
        (lambda: pcie.read_request_bytes(bytes(64)), "permission denied: root only"),
        (lambda: pcie.read_request_bytes(bytes(256)), "no PCI Express device"),
        (lambda: pcie.redirects(bytes(64)), "permission denied: root only"),
        (lambda: pcie.redirects(bytes(256)), False),
    ],
)  # fmt: skip
def test_what_pcie_tells(read: Any, expected: Any) -> None:
    try:
        found = read()
    except Unreadable as reason:
        found = reason.message
    assert found == expected


def test_capabilities_that_lead_in_a_circle() -> None:
    space = bytearray(4096)
    space[0x06], space[0x34], space[0x41] = 0x10, 0x40, 0x40
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x100 << 20)
    with pytest.raises(Unreadable, match="no PCI Express device"):
        pcie.payload_bytes(bytes(space))
    assert not pcie.redirects(bytes(space))


class NotSupportedError(Exception):
    """As NVML's."""


def fake_nvml(**other: Any) -> Any:
    def refuse(*_: object) -> int:
        raise NotSupportedError("Not Supported")

    calls = {call: (lambda _: 5) for call in nvml.SIMPLE.values()}
    told = calls | {
        "NVMLError": NotSupportedError,
        "NVML_NVLINK_MAX_LINKS": 3,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlSystemGetDriverVersion": lambda: b"550.1",
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _: "X100",
        "nvmlDeviceGetPciInfo": lambda _: SimpleNamespace(busId=b"00000000:1B:00.0"),
        "nvmlDeviceGetEccMode": lambda _: [1, 1],
        "nvmlDeviceGetTotalEccErrors": lambda *_: 2,
        "nvmlDeviceGetRemappedRows": refuse,
        "nvmlDeviceGetNvLinkState": lambda _, link: int(link == 0) if link < 2 else refuse(),
        "nvmlDeviceGetNvLinkErrorCounter": lambda *_: 4,
    }
    return SimpleNamespace(**(told | other))


def test_what_nvml_tells() -> None:
    (gpu,) = nvml.read(fake_nvml()).gpus
    assert gpu.pci_address == "0000:1b:00.0"
    assert gpu.values["product"] == "X100"
    assert gpu.values["ecc"] == 1
    assert gpu.values["nvlinks"] == [1, 0]
    assert gpu.values["nvlink_errors"] == [12]
    assert gpu.problems == {"rows": "NVML: Not Supported"}


def test_an_nvml_that_is_too_old_or_has_no_driver() -> None:
    old = fake_nvml()
    del old.nvmlDeviceGetRemappedRows
    (gpu,) = nvml.read(old).gpus
    assert gpu.problems["rows"].startswith("NVML: ")

    def no_driver() -> None:
        raise NotSupportedError("Driver Not Loaded")

    with pytest.raises(Unreadable, match="NVML: Driver Not Loaded"):
        nvml.read(fake_nvml(nvmlInit=no_driver))


def test_all_answers_have_one_that_is_asked() -> None:
    kinds = {
        one for one in vars(answers).values() if isinstance(one, type) and one.__module__ == answers.__name__
    }
    inner = {answers.Link, answers.Address, answers.Route, answers.Gpu}
    assert kinds - inner == WHOLE.keys() | EACH.keys()


@pytest.mark.parametrize(
    "kind", [kind for kind in WHOLE if kind is not answers.Gpus], ids=lambda kind: kind.__name__
)
def test_this_kernel_answers(kind: type) -> None:
    assert isinstance(Live().ask(kind), kind)


@pytest.mark.parametrize("kind", list(EACH), ids=lambda kind: kind.__name__)
def test_of_what_is_not_there_nothing_is_told(kind: type) -> None:
    with suppress(Unreadable):
        told = Live().ask(kind, "nope")
        assert told == kind(problems=told.problems)


def test_this_host_and_a_recording_of_it(tmp_path: Path) -> None:
    live = facts(record=str(tmp_path))
    recorded = facts(root=str(tmp_path))
    assert live.troubles == recorded.troubles
    assert [(one.kind, one.name, one.role) for one in live.subjects] == [
        (one.kind, one.name, one.role) for one in recorded.subjects
    ]
    for one, other in zip(live.subjects, recorded.subjects, strict=True):
        assert steady(one.facts) == steady(other.facts)
        assert one.missing.keys() == other.missing.keys()
    assert live.subjects[0].facts["kernel_release"] == os.uname().release
    assert Recorded(tmp_path).ask(answers.Uname).machine == os.uname().machine


def steady(told: dict[str, Any]) -> dict[str, Any]:
    return {fact: value for fact, value in told.items() if fact not in CHANGING}


NOBODY = "import os; from cwdp.audit import child; os.setgroups([]); os.setresgid(*[65534] * 3); os.setresuid(*[65534] * 3); child.main()"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_else_than_root_is_told_as_much_as_files_let_them() -> None:
    as_root, as_nobody = facts(), facts(child=(sys.executable, "-c", NOBODY))
    assert as_nobody.troubles == as_root.troubles
    assert [one.name for one in as_nobody.subjects] == [one.name for one in as_root.subjects]
    for one, other in zip(as_nobody.subjects, as_root.subjects, strict=True):
        assert one.facts.keys() <= other.facts.keys()
        assert one.facts.keys() | one.missing.keys() == other.facts.keys() | other.missing.keys()


def facts(child: tuple[str, ...] = CHILD, **wanted: Any) -> HostFacts:
    return asyncio.run(collect(Wanted(host="a", **wanted), child=child))
