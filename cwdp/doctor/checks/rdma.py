"""RDMA devices: whether what they send passes the host's network stack."""

from collections.abc import Iterator

from cwdp.dataplane.abi import ROCE_PORT
from cwdp.doctor.facts import Facts, RdmaPort
from cwdp.doctor.result import Result

NAME = "RDMA"


def devices(facts: Facts) -> Iterator[Result]:
    """Each RDMA port of the NICs, and what cwdp sees of its queue pairs."""
    names = {nic.name for nic in facts.nics}
    ports = [port for port in facts.rdma_ports if port.netdev in names]
    for port in ports:
        yield _port(facts, port)
    by_queue_pairs = facts.config.ud_nics if facts.config else {}
    for name in by_queue_pairs.keys() - {port.netdev for port in ports}:
        step = f"load the NIC's RDMA driver, or leave out transport for {name} in agent.toml"
        what = 'transport = "ud", and no RDMA device'
        yield Result(name=NAME, of=name, verdict="fail", what=what, next_step=step)
    if not ports and not by_queue_pairs:
        yield Result(
            name=NAME, verdict="ok", what="no RDMA device: clocks and delays work, there are no queue pairs"
        )


def _port(facts: Facts, port: RdmaPort) -> Result:
    config, of = facts.config, port.netdev or port.device
    called = f"{port.device}/{port.port}"
    if port.state != "ACTIVE":
        step = f"rdma link show {called}"
        return Result(name=NAME, of=of, verdict="warn", what=f"{called} is {port.state}", next_step=step)
    if config is not None and of in config.ud_nics:
        if not facts.has_pyverbs:
            step = "apt install python3-pyverbs"
            what = 'transport = "ud", and pyverbs is missing'
            return Result(name=NAME, of=of, verdict="fail", what=what, next_step=step)
        what = f"{called}: probed by UD queue pairs, stamps of user space"
        return Result(name=NAME, of=of, verdict="ok", what=what)
    if port.is_software:
        return Result(
            name=NAME,
            of=of,
            verdict="ok",
            what=f"{called} is Soft-RoCE: its queue pairs are seen and steered",
        )
    return _hardware(of, called, ROCE_PORT if config is None else config.probe_port)


def _hardware(of: str, called: str, probe_port: int) -> Result:
    unseen = f"{called} is hardware RoCE: its queue pairs pass XDP and tc unseen, so none is steered"
    if probe_port != ROCE_PORT:
        what = f"{unseen}; probes go by port {probe_port}"
        return Result(name=NAME, of=of, verdict="warn", what=what, next_step="see docs/rdma.md")
    step = f'probe by queue pairs ([interface.{of}] transport = "ud"), or set probe_port'
    what = f"{unseen}, and the NIC may take probes to UDP port {ROCE_PORT} before XDP does"
    return Result(name=NAME, of=of, verdict="warn", what=what, next_step=step)
