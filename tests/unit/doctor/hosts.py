"""Facts of hosts as they would be read there, for the tests."""

from typing import Any

from msgspec.structs import replace

from cwdp.agent.config import AgentConfig
from cwdp.doctor.facts import Agent, Bus, Clock, Dataplane, Facts, Firewall, Kernel, Known, Nic, RdmaPort

ALL_CAPABILITIES = (1 << 41) - 1
NATIVE_WITH_FRAGMENTS = 0x37
LOADED = Dataplane(mode="native", is_current=True, faults=[])
HARDWARE = Nic(
    name="eth1",
    driver="mlx5_core",
    mtu=4200,
    addresses=["10.0.0.17"],
    xdp_features=NATIVE_WITH_FRAGMENTS,
    program=31,
    dataplane=LOADED,
)
HARDWARE_ROCE = RdmaPort(device="mlx5_0", port=1, state="ACTIVE", netdev="eth1", is_software=False)
SOFT_ROCE = replace(HARDWARE_ROCE, device="rxe0", is_software=True)

HEALTHY = Facts(
    host="gpu-17",
    config=AgentConfig(nics=["eth1"], host="gpu-17"),
    config_problem=None,
    credential=Known("h1", "main", 1_900_000_000.0),
    credential_problem=None,
    keys_problem=None,
    kernel=Kernel(
        release="6.12.9-1-generic",
        has_btf=True,
        has_jit=True,
        capabilities=ALL_CAPABILITIES,
        bpffs="writable",
        tells_waits=True,
        available_bytes=1 << 38,
    ),
    nics=[HARDWARE],
    rdma_ports=[SOFT_ROCE],
    has_pyverbs=True,
    clock=Clock(source="adjtimex", hardware="tsc", daemons=["chronyd"]),
    firewall=Firewall(ruleset=[], has_iptables=False),
    udp_sockets=[],
    bus=Bus(version="2.9.10"),
    agent=Agent(state="active", restarts=0, processes=1),
)


def kernel(**changes: Any) -> Facts:
    return replace(HEALTHY, kernel=replace(HEALTHY.kernel, **changes))


def nic(**changes: Any) -> Facts:
    """Another NIC, whose dataplane is not loaded unless that is said."""
    return replace(HEALTHY, nics=[replace(HARDWARE, **({"dataplane": None, "program": None} | changes))])


def config(facts: Facts = HEALTHY, **changes: Any) -> Facts:
    assert facts.config is not None
    return replace(facts, config=replace(facts.config, **changes))
