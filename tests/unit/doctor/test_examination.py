"""What `cwdp doctor` says of hosts whose facts were written down elsewhere."""

import socket
from pathlib import Path
from typing import Any

import hosts
import msgspec
import pytest
from hosts import HARDWARE_ROCE, HEALTHY, LOADED, config, kernel, nic
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cwdp.agent.collectives.keeper import NcclConfig
from cwdp.agent.config import InterfaceConfig, UprobesConfig, VerbsConfig
from cwdp.doctor.examination import examine
from cwdp.doctor.facts import (
    Agent,
    Bus,
    Clock,
    Dataplane,
    Door,
    Facts,
    Firewall,
    Problem,
    UdpSocket,
    Uprobes,
    Verbs,
)
from cwdp.doctor.reading.verbs import read_verbs
from cwdp.doctor.result import Result, Verdict, gravest
from cwdp.rdma.libraries import NCCL, VERBS, library

RECORDED = sorted((Path(__file__).parent / "machines").glob("*.json"))
NO_FEATURES = None  # as before 6.3


def of(facts: Facts, name: str) -> Result:
    (found,) = (result for result in examine(facts) if result.name == name)
    return found


def test_a_healthy_host_is_well_and_nothing_is_left_to_do() -> None:
    results = examine(HEALTHY)
    assert gravest(results) == "ok"
    assert {result.next_step for result in results} == {""}
    assert {"kernel", "BTF", "bpffs", "privileges", "XDP", "RDMA", "clock discipline", "bus", "agent"} <= {
        result.name for result in results
    }


def ud(facts: Facts) -> Facts:
    return config(facts, interface={"eth1": InterfaceConfig(transport="ud")})


HARDWARE_HOST = replace(HEALTHY, rdma_ports=[HARDWARE_ROCE])
SHIM = Verbs(
    library="/usr/lib/cwdp/verbs/libcwdp_verbs.so", socket="open", has_libibverbs=True, libmlx5="1.24.44.0",
    moves_mlx5=True,
)  # fmt: skip


def shimmed(**changes: Any) -> Facts:
    return replace(config(HARDWARE_HOST, verbs=VerbsConfig()), verbs=replace(SHIM, **changes))


PLUGIN = Door(library="/usr/lib/cwdp/verbs/libcwdp_nccl.so", socket="open")


def plugged(**changes: Any) -> Facts:
    return replace(config(HEALTHY, nccl=NcclConfig()), nccl=replace(PLUGIN, **changes))


def traced(lack: Problem | None = None, *missing: str) -> Facts:
    named = config(HEALTHY, uprobes=UprobesConfig(cgroups=["/train", "/infer"]))
    return replace(named, uprobes=Uprobes(lack=lack, missing=list(missing)))


CASES: list[tuple[Facts, str, Verdict, str]] = [
    (kernel(release="5.10.0-28-amd64"), "kernel", "fail", "5.18"),
    (kernel(release="6.1.0-56-amd64"), "kernel", "ok", "clsact"),
    (kernel(release="6.6.1"), "kernel", "ok", "TCX"),
    (kernel(release="10.0-rc1"), "kernel", "ok", "TCX"),
    (kernel(has_btf=False), "BTF", "fail", "CONFIG_DEBUG_INFO_BTF"),
    (kernel(has_jit=False), "JIT", "warn", "bpf_jit_enable"),
    (kernel(has_jit=None), "JIT", "ok", "cannot be read"),
    (kernel(capabilities=0), "privileges", "fail", "CAP_BPF"),
    (kernel(capabilities=1 << 21), "privileges", "fail", "CAP_NET_ADMIN, CAP_NET_RAW"),
    (kernel(capabilities=1 << 21 | 1 << 12 | 1 << 13), "privileges", "warn", "CAP_SYS_NICE"),
    (kernel(), "pressure", "ok", "are told"),
    (kernel(tells_waits=False), "pressure", "warn", "psi=1"),
    (kernel(bpffs="missing"), "bpffs", "fail", "mount -t bpf"),
    (kernel(bpffs="read-only"), "bpffs", "fail", "ProtectKernelTunables"),
    (kernel(available_bytes=1 << 20), "memory", "ok", "1 MiB"),
    (replace(nic(), kernel=kernel(available_bytes=1 << 20).kernel), "memory", "warn", "32 MiB"),
    (replace(HEALTHY, nics=[]), "interface", "fail", "no such interface"),
    (nic(is_ethernet=False), "interface", "fail", "no Ethernet frames"),
    (nic(master="bond0", master_kind="bond"), "interface", "fail", "name bond0 instead"),
    (nic(has_carrier=False), "interface", "fail", "no carrier"),
    (nic(addresses=[]), "interface", "fail", "no address"),
    (nic(), "XDP", "ok", "the driver mlx5_core says so"),
    (nic(mtu=9000), "XDP", "ok", "native"),
    (nic(mtu=9000, xdp_features=0x7), "XDP", "warn", "mtu 3000"),
    (nic(mtu=9000, xdp_features=NO_FEATURES), "XDP", "warn", "MTU of 9000"),
    (nic(mtu=1500, xdp_features=NO_FEATURES), "XDP", "ok", "as far as known"),
    (nic(offloads=["rx-gro-hw"]), "XDP", "warn", "ethtool -K eth1 rx-gro-hw off"),
    (nic(offloads=["rx-lro"], dataplane=LOADED), "XDP", "ok", "as it was loaded"),
    (nic(driver="r8169", xdp_features=0), "XDP", "fail", 'generic = "allow"'),
    (nic(driver="r8169", xdp_features=NO_FEATURES), "XDP", "fail", "the driver r8169 has none"),
    (config(nic(driver="r8169", xdp_features=0), generic="allow"), "XDP", "warn", "later and noisier"),
    (nic(driver="", kind="veth", xdp_features=0), "XDP", "ok", "generic"),
    (nic(driver="", kind="vlan", lower="eth0", xdp_features=0), "XDP", "fail", "address to eth0"),
    (nic(driver="bridge", kind="bridge", xdp_features=0), "XDP", "fail", "out of the bridge"),
    (nic(program=7), "XDP", "fail", "id 7"),
    (nic(dataplane=replace(LOADED, mode="generic"), driver="r8169"), "XDP", "fail", "generic"),
    (nic(offloads=["rx-vlan-hw-parse"]), "offloads", "ok", "off while"),
    (nic(offloads=["rx-vlan-hw-parse"], dataplane=LOADED), "offloads", "warn", "VLAN tags"),
    (nic(), "dataplane", "warn", "not loaded"),
    (nic(dataplane=replace(LOADED, is_current=False)), "dataplane", "fail", "cwdp dataplane upgrade eth1"),
    (nic(dataplane=replace(LOADED, faults=["tc_egress is not attached"])), "dataplane", "fail", "tc_egress"),
    (
        nic(dataplane=Dataplane(mode=None, is_current=False, faults=[], error="has layout 3")),
        "dataplane",
        "fail",
        "cwdp dataplane unload eth1",
    ),
    (HARDWARE_HOST, "RDMA", "warn", 'transport = "ud"'),
    (config(HARDWARE_HOST, probe_port=4790), "RDMA", "warn", "port 4790"),
    (ud(HARDWARE_HOST), "RDMA", "ok", "UD queue pairs"),
    (replace(ud(HARDWARE_HOST), has_pyverbs=False), "RDMA", "fail", "python3-pyverbs"),
    (ud(replace(HEALTHY, rdma_ports=[])), "RDMA", "fail", "no RDMA device"),
    (replace(HEALTHY, rdma_ports=[]), "RDMA", "ok", "no RDMA device"),
    (replace(HEALTHY, rdma_ports=[replace(HARDWARE_ROCE, state="DOWN")]), "RDMA", "warn", "DOWN"),
    (shimmed(), "verbs shim", "ok", "/usr/lib/cwdp/verbs/libcwdp_verbs.so"),
    (shimmed(has_libibverbs=False), "verbs shim", "ok", "only programs in containers"),
    (shimmed(library=None), "verbs shim", "warn", "make shim"),
    (shimmed(), "verbs socket", "ok", "reach the agent at /run/cwdp-verbs/verbs.sock"),
    (shimmed(socket="missing"), "verbs socket", "fail", "programs cannot connect"),
    (shimmed(socket="closed"), "verbs socket", "warn", "only root's programs"),
    (shimmed(is_exposed=True), "verbs socket", "warn", "RuntimeDirectory="),
    (plugged(), "NCCL plug-in", "ok", "/usr/lib/cwdp/verbs/libcwdp_nccl.so"),
    (plugged(library=None), "NCCL plug-in", "warn", "make nccl"),
    (plugged(), "NCCL socket", "ok", "reach the agent at /run/cwdp-verbs/nccl.sock"),
    (plugged(socket="missing"), "NCCL socket", "fail", "programs cannot connect"),
    (plugged(is_exposed=True), "NCCL socket", "warn", "docs/nccl.md"),
    (traced(), "uprobes", "ok", "bcc and kernel headers"),
    (traced(Problem("bcc is not there", "install python3-bpfcc")), "uprobes", "warn", "python3-bpfcc"),
    (traced(), "traced cgroups", "ok", "/train, /infer"),
    (traced(None, "/infer"), "traced cgroups", "warn", "no cgroup /infer,"),
    (shimmed(), "libmlx5", "ok", "libmlx5 1.24.44.0 moves"),
    (shimmed(libmlx5=None, moves_mlx5=False), "libmlx5", "ok", "no libmlx5"),
    (shimmed(libmlx5="1.16.30.0", moves_mlx5=False), "libmlx5", "warn", "1.17 or newer"),
    (
        replace(HEALTHY, clock=Clock(source="raw", hardware="hpet", daemons=[])),
        "clock source",
        "warn",
        "hpet",
    ),
    (
        replace(HEALTHY, clock=Clock(source="raw", hardware="tsc", daemons=["chronyd", "ptp4l", "phc2sys"])),
        "clock discipline",
        "warn",
        "chronyd and phc2sys",
    ),
    (
        replace(HEALTHY, clock=Clock(source="none", hardware="tsc", daemons=[])),
        "clock discipline",
        "warn",
        "RAW",
    ),
    (
        replace(HEALTHY, clock=Clock(source="raw", hardware="tsc", daemons=["ptp4l"])),
        "clock discipline",
        "ok",
        "ptp4l",
    ),
    (replace(HEALTHY, udp_sockets=[UdpSocket(address="0", program="")]), "probe port", "ok", "4791"),
    (replace(HEALTHY, udp_sockets=[UdpSocket(address="0", program="iperf")]), "probe port", "warn", "iperf"),
    (replace(HEALTHY, bus=Bus(problem="Connection refused")), "bus", "fail", "Connection refused"),
    (replace(HEALTHY, keys_problem=Problem("too open", "chmod")), "cluster keys", "fail", "chmod"),
    (
        replace(HEALTHY, agent=Agent(state="inactive", restarts=0, processes=0)),
        "agent",
        "warn",
        "systemctl start",
    ),
    (replace(HEALTHY, agent=Agent(state=None, restarts=0, processes=0)), "agent", "warn", "cwdp agent run"),
    (
        replace(HEALTHY, agent=Agent(state="activating", restarts=9, processes=0)),
        "agent",
        "fail",
        "journalctl",
    ),
    (replace(HEALTHY, agent=Agent(state=None, restarts=0, processes=2)), "agent", "fail", "2 agents"),
]


@pytest.mark.parametrize(
    ("facts", "name", "verdict", "said"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_is_wrong_is_named_with_the_next_step(
    facts: Facts, name: str, verdict: Verdict, said: str
) -> None:
    found = of(facts, name)
    assert found.verdict == verdict
    assert said in f"{found.what} {found.next_step}"
    assert found.next_step or verdict == "ok"


def test_without_a_configuration_what_can_be_told_is_told() -> None:
    problem = Problem("cannot read agent.toml: No such file or directory", "create it")
    results = {
        result.name: result
        for result in examine(replace(HEALTHY, config=None, config_problem=problem, bus=None))
    }
    assert (results["configuration"].verdict, results["configuration"].next_step) == ("fail", "create it")
    assert results["XDP"].verdict == "ok"
    assert results.keys().isdisjoint({"bus", "cluster keys"})


def chain(hook: str, policy: str, name: str = "out") -> dict[str, object]:
    return {"chain": {"family": "inet", "table": "t", "name": name, "hook": hook, "policy": policy}}


def rule(verdict: str, port: object = None, name: str = "out", family: str = "inet") -> dict[str, object]:
    match = {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": port}}
    return {
        "rule": {
            "family": family,
            "table": "t",
            "chain": name,
            "expr": [*([match] if port else []), {verdict: None}],
        }
    }


OTHER = {"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "eth0"}}
RULESETS = [
    ([chain("output", "accept")], "ok"),
    ([chain("output", "drop")], "fail"),
    ([chain("input", "drop")], "ok"),
    ([chain("output", "drop"), rule("accept", 4791)], "ok"),
    ([chain("output", "drop"), rule("accept", {"set": [53, {"range": [4000, 5000]}]})], "ok"),
    ([chain("output", "drop"), rule("accept", 53)], "fail"),
    ([chain("output", "accept"), rule("drop", 4791)], "fail"),
    ([chain("output", "accept"), rule("accept", 4791), rule("drop")], "ok"),
    ([chain("output", "accept"), rule("reject")], "fail"),
    ([chain("output", "accept"), rule("drop", 4791, name="another")], "ok"),
    ([chain("output", "accept"), rule("drop", 4791, family="ip6")], "ok"),
    (
        [chain("postrouting", "accept"), {"rule": rule("drop")["rule"] | {"expr": [OTHER, {"drop": None}]}}],
        "ok",
    ),
]


@pytest.mark.parametrize(("ruleset", "verdict"), RULESETS)
def test_rules_that_drop_probes_are_seen(ruleset: list[dict[str, object]], verdict: Verdict) -> None:
    facts = replace(HEALTHY, firewall=Firewall(ruleset=ruleset, has_iptables=False))
    assert of(facts, "packet filter").verdict == verdict


@given(tracked=st.integers(0, 1 << 20), limit=st.integers(1, 1 << 20), is_exempt=st.booleans())
def test_a_table_of_connections_is_named_before_it_is_full(tracked: int, limit: int, is_exempt: bool) -> None:
    ruleset = [chain("output", "accept"), *([rule("notrack", 4791)] if is_exempt else [])]
    firewall = Firewall(ruleset=ruleset, has_iptables=False, tracked=tracked, tracked_max=limit)
    warned = of(replace(HEALTHY, firewall=firewall), "connection tracking").verdict == "warn"
    assert warned == (tracked > 0 and 2 * tracked >= limit and not is_exempt)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_hosts(path: Path) -> None:
    """Each file holds what was read on a host, and what is expected of each check that is not well there."""
    recorded = msgspec.json.decode(path.read_bytes())
    facts = msgspec.convert(recorded["facts"], Facts)
    found = {f"{one.name} {one.of}".strip(): one.verdict for one in examine(facts) if one.verdict != "ok"}
    assert found == recorded["not_ok"]


def test_a_check_has_one_name_for_each_interface_and_every_verdict_but_ok_says_what_to_do() -> None:
    for facts, *_ in CASES:
        results = examine(facts)
        keys = [(result.name, result.of) for result in results]
        assert len(keys) == len(set(keys))
        assert all(result.next_step for result in results if result.verdict != "ok")


def test_hosts_of_the_tests_survive_being_written_down() -> None:
    assert msgspec.json.decode(msgspec.json.encode(hosts.HEALTHY), type=Facts) == hosts.HEALTHY


def test_what_programs_find_of_the_shim_is_read(tmp_path: Path) -> None:
    class Loaded:
        mlx5dv_modify_qp_udp_sport = None

    def load(name: str) -> object:
        if name == "libibverbs.so.1":
            raise OSError(name)
        return Loaded()

    folder = tmp_path / "run"
    found = read_verbs(VerbsConfig(socket=str(folder / "verbs.sock")), load)
    assert (found.socket, found.has_libibverbs, found.libmlx5, found.moves_mlx5) == (
        "missing",
        False,
        "1",
        True,
    )
    folder.mkdir()
    folder.chmod(0o755)
    path = folder / "verbs.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        told = [read_verbs(VerbsConfig(socket=str(path)), load)]
        path.chmod(0o666)
        told.append(read_verbs(VerbsConfig(socket=str(path)), load))
        folder.chmod(0o777)
        told.append(read_verbs(VerbsConfig(socket=str(path)), load))
    assert [(one.socket, one.is_exposed) for one in told] == [
        ("closed", False),
        ("open", False),
        ("open", True),
    ]


def test_the_library_is_that_of_the_package_else_of_the_wheel_else_of_the_checkout(tmp_path: Path) -> None:
    places = tuple(tmp_path / name for name in ("package", "wheel", "checkout"))
    assert library(VERBS, places) is None
    for place in reversed(places):
        place.mkdir()
        for name in (VERBS, NCCL):
            (place / name).touch()
            assert library(name, places) == place / name
