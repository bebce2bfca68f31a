"""Facts of as many hosts as wanted, uniform but for what is each host's own: names, serials, addresses, counters."""

from collections.abc import Sequence
from random import Random

from cwdp.shared.audit.facts import HostFacts, Role, Subject
from tools.sim.audit.kinds import KINDS, Facts, Kind, Nic

TAKEN_S = 1_900_000_000.0
JITTER_BYTES = 1 << 28


def fleet(hosts: int, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> list[HostFacts]:
    """Facts of hosts of some kinds in turn: `h100-001` and so on."""
    rng = Random(seed)
    return [host(KINDS[kinds[number % len(kinds)]], number // len(kinds) + 1, rng) for number in range(hosts)]


def host(kind: Kind, number: int, rng: Random) -> HostFacts:
    """Facts of one host."""
    own: Facts = {
        "memory_bytes": int(str(kind.host["memory_bytes"])) - rng.randrange(JITTER_BYTES),
        "clock_bound_ns": rng.uniform(50, 900),
        "command_line": sorted([*_texts(kind.host, "command_line"), f"root=UUID={rng.getrandbits(64):x}"]),
    }
    nics, ports = [], []
    for group in kind.nics:
        nics += [_nic(group, at, number, rng) for at in range(group.count)]
        ports += _ports(group, nics[-group.count :], rng)
    gpus = [_gpu(kind, at, rng) for at in range(kind.gpus)]
    subjects = [Subject(kind="host", facts={**kind.host, **own}, missing=kind.missing), *nics, *ports, *gpus]
    return HostFacts(host=f"{kind.name}-{number:03}", taken_s=TAKEN_S + rng.random(), subjects=subjects)


def _texts(facts: Facts, name: str) -> list[str]:
    value = facts[name]
    assert isinstance(value, list)
    return [str(each) for each in value]


def _nic(group: Nic, at: int, number: int, rng: Random) -> Subject:
    own: Facts = {
        "pci_address": f"0000:{16 * at + rng.randrange(2):02x}:00.0",
        "numa_node": at * 2 // group.count,
        "carrier_changes": rng.randrange(1, 5),
        "addresses": [f"10.{at}.{number // 250}.{number % 250 + 1}/16"],
        "routes": [f"10.{at}.0.0/16", f"10.{at}.{number // 250}.{number % 250 + 1}"],
    }
    if "pcie_width" in group.facts:
        own["pcie_errors"] = rng.choice([0, 0, 0, rng.randrange(20)])
        own["module_serial"] = f"MT{rng.getrandbits(40):010X}"
    if group.has_module:
        own["module_temperature_c"] = round(rng.gauss(52, 3), 1)
        own["module_rx_power_dbm"] = [round(rng.gauss(0.5, 0.7), 2) for _ in range(4)]
        own["module_tx_power_dbm"] = [round(rng.gauss(1.0, 0.4), 2) for _ in range(4)]
    return Subject(kind="nic", name=f"{group.name}{at}", role=_role(group.role), facts={**group.facts, **own})


def _role(word: str) -> Role:
    return "back" if word == "back" else "front" if word == "front" else ""


def _ports(group: Nic, nics: Sequence[Subject], rng: Random) -> list[Subject]:
    if not group.rdma:
        return []
    found = []
    for at, nic in enumerate(nics):
        own: Facts = {
            "netdev": nic.name,
            "out_of_sequence": rng.randrange(10_000),
            "ack_timeouts": rng.randrange(5),
            "symbol_errors": rng.randrange(3),
            "link_downed": rng.randrange(3),
        }
        role = _role("back" if group.rdma != "rxe" else "front")
        found.append(
            Subject(kind="rdma", name=f"{group.rdma}_{at}/1", role=role, facts={**own, **group.rdma_facts})
        )
    return found


def _gpu(kind: Kind, at: int, rng: Random) -> Subject:
    own: Facts = {
        "uuid": f"GPU-{rng.getrandbits(64):016x}",
        "pci_address": f"0000:{16 * at + 15:02x}:00.0",
        "numa_node": at * 2 // kind.gpus,
        "pcie_gtps": rng.choice([2.5, 8.0, kind.gpu["pcie_gtps_max"]]),
    }
    return Subject(kind="gpu", name=str(at), facts={**kind.gpu, **own}, missing=kind.gpu_missing)
