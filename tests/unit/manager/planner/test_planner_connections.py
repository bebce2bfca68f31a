"""TCP connections in the planner: which are flows, and that colliding ones are placed apart and beside queue pairs."""

from ipaddress import ip_address
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from cwdp.shared.addresses import address_bytes
from cwdp.shared.bus.messages import SteerQp
from cwdp.shared.bus.packing import row_bytes
from cwdp.shared.connections import TCP_ROW, NicConnections, TcpReport
from cwdp.shared.tcp import SteerTcp
from manager.config import PlannerSettings
from manager.fabric.routes import DirectedLink, PathName, Routes
from manager.placement.flows import Flows, QpName, together
from manager.planner.candidates import Candidates
from manager.planner.located import Located
from manager.planner.moves import Budget
from manager.planner.problem import UNKNOWN_PATH_S, Links, PlannerInputs
from manager.planner.steering_state import SteeringState
from manager.planner.step import step
from manager.tcp.connections import ConnectionStore
from manager.tcp.names import Connection, connection_of, tcp_address
from manager.tcp.planned import PlannedConnections

ADDRESS = {f"h{n}": f"10.0.0.{n}" for n in range(1, 5)}
NICS = {address: f"{host}/eth0" for host, address in ADDRESS.items()}
PORTS = (50_001, 50_002)
LINKS = tuple(
    DirectedLink(*pair)
    for pair in (
        *((f"h{n}/eth0", "l1") for n in (1, 2)),
        *(("l1", f"s{n}") for n in (1, 2)),
        *((f"s{n}", "l2") for n in (1, 2)),
        *(("l2", f"h{n}/eth0") for n in (3, 4)),
    )
)
NIC_BPS = 100e6
STEERABLE = {(f"h{n}", "eth0") for n in range(1, 5)}


def sending(store: ConnectionStore, ports: dict[QpName, int], now_s: float) -> Flows:
    return PlannedConnections(store).read(NICS, STEERABLE, ports, now_s)


def large(flows: Flows) -> list[QpName]:
    return [name for name, small in zip(flows.names, flows.small.tolist(), strict=True) if not small]


def told_row(host: str, far: str, ports: tuple[int, int]) -> NDArray[np.void]:
    row = np.zeros(1, TCP_ROW)
    for end, address in (("local", ADDRESS[host]), ("remote", ADDRESS[far])):
        row[f"{end}_addr"] = np.frombuffer(address_bytes(ip_address(address)), np.uint8)
    row["local_port"], row["remote_port"] = ports
    row["state"] = 1
    return row


def told(host: str, far: str, ports: tuple[int, int], acked: int, at_s: float) -> TcpReport:
    row = told_row(host, far, ports)
    row["bytes_acked"] = acked
    nic = NicConnections(nic="eth0", rows=row_bytes(row))
    return TcpReport(host=host, at_ns=round(at_s * 1e9), nics=[nic], services=["x"])


def transfer(store: ConnectionStore, src: str, dst: str, *, both: bool = True, rate: int = 6_000_000) -> None:
    """A connection from a port 40000 to 5201 that sends so many bytes a second."""
    for at_s in (1.0, 2.0):
        store.hear(told(src, dst, (40_000, 5201), round(rate * at_s), at_s), {"eth0": NIC_BPS}, 100.0 + at_s)
        if both:
            store.hear(told(dst, src, (5201, 40_000), 0, at_s), {"eth0": NIC_BPS}, 100.0 + at_s)


def routes(**seen: dict[int, str]) -> Routes:
    """Each pair's spine by port, for `tcp` or `roce` destinations: the two are hashed apart."""
    paths = {}
    for kind, spines in seen.items():
        for src in ("h1", "h2"):
            for dst in ("h3", "h4"):
                for port, spine in spines.items():
                    address = tcp_address(ADDRESS[dst]) if kind == "tcp" else ADDRESS[dst]
                    way = (f"{src}/eth0", "l1", spine, "l2", f"{dst}/eth0")
                    links = tuple(LINKS.index(DirectedLink(*pair)) for pair in pairwise(way))
                    paths[PathName(f"{src}/eth0", address, port)] = links
    return Routes(1, LINKS, paths)


TCP_ROUTES = routes(tcp={50_001: "s1", 50_002: "s2"}, roce={50_001: "s2", 50_002: "s1"})


def placed(flows: Flows) -> dict[QpName, int]:
    """The ports that the planner wants, once unknown paths have been unknown for long enough."""
    steering, located, settings = SteeringState(), Located(), PlannerSettings(enabled=True)
    budget = Budget(settings.moves_per_s, settings.moves_per_host_s)
    nothing = np.full(len(LINKS), np.nan), np.ones(len(LINKS), bool)
    for now_s in (200.0, 200.1 + UNKNOWN_PATH_S):
        inputs = PlannerInputs(
            now_s=now_s,
            flows=flows,
            candidates=Candidates(TCP_ROUTES),
            links=Links(nothing[0], nothing[1], ~nothing[1], ~nothing[1], ~nothing[1]),
            nic_bps=NIC_BPS,
        )
        step(inputs, steering, located, budget, settings)
    return {name: int(steering.of(name).sport) for name in flows.names}


def test_a_connection_has_a_name_that_leads_back_to_it() -> None:
    one = Connection("h1", "eth0", 65_535, "fd00::3", 1)
    assert connection_of(one.name) == one
    assert connection_of(QpName("h1", "eth0", "10.0.0.3", 7)) is None
    assert one.name != Connection("h1", "eth0", 1, "fd00::3", 65_535).name


def test_only_what_is_large_and_told_by_both_ends_is_a_flow() -> None:
    store = ConnectionStore()
    transfer(store, "h1", "h3")
    transfer(store, "h2", "h4", both=False)
    transfer(store, "h2", "h3", rate=100_000)
    flows = sending(store, {}, 102.0)
    assert [connection_of(name) for name in flows.names] == [
        Connection("h1", "eth0", 40_000, ADDRESS["h3"], 5201),
        Connection("h3", "eth0", 5201, ADDRESS["h1"], 40_000),
    ]
    assert (flows.dst, flows.small.tolist()) == (["h3/eth0", "h1/eth0"], [False, True])
    assert (flows.sport.tolist(), flows.rate_bps.tolist()) == ([0, 0], [48e6, 0.0])
    assert sending(store, {flows.names[0]: 50_002}, 102.0).sport.tolist() == [50_002, 0]
    assert sending(store, {}, 110.0).names == []


def test_both_ends_have_to_tell_what_is_steered() -> None:
    store = ConnectionStore()
    transfer(store, "h1", "h3")
    for gone in ("h1", "h3"):
        steerable = STEERABLE - {(gone, "eth0")}
        assert PlannedConnections(store).read(NICS, steerable, {}, 102.0).names == []


def test_of_thousands_of_connections_only_the_large_ones_are_placed() -> None:
    store = ConnectionStore()
    rows = np.concatenate([told_row("h1", "h3", (port, 5201)) for port in range(10_000, 12_000)])
    back = np.concatenate([told_row("h3", "h1", (5201, port)) for port in range(10_000, 12_000)])
    for at_s, seconds in ((1.0, 1), (2.0, 2)):
        rows["bytes_acked"], rows["bytes_acked"][7] = 1_000 * seconds, 5_000_000 * seconds
        for host, sent in (("h1", rows), ("h3", back)):
            nic = NicConnections(nic="eth0", rows=row_bytes(sent))
            report = TcpReport(host=host, at_ns=round(at_s * 1e9), nics=[nic], services=["x"])
            store.hear(report, {"eth0": NIC_BPS}, 100.0 + at_s)
    assert [name.qpn >> 16 for name in large(sending(store, {}, 102.0))] == [10_007]


def test_one_that_was_large_stays_so_for_a_while() -> None:
    store = ConnectionStore()
    transfer(store, "h1", "h3", rate=130_000)
    planned = PlannedConnections(store)
    (before,) = large(planned.read(NICS, STEERABLE, {}, 102.0))
    store.hear(told("h1", "h3", (40_000, 5201), 340_000, 3.0), {"eth0": NIC_BPS}, 103.0)
    assert large(planned.read(NICS, STEERABLE, {}, 103.0)) == [before]
    assert large(sending(store, {}, 103.0)) == []


def test_what_is_wanted_of_connections_goes_down_and_comes_back() -> None:
    planned = PlannedConnections(ConnectionStore())
    for local, remote in (("10.0.0.1", "10.0.0.3"), ("fd00::1", "fd00::3")):
        steer = SteerTcp(
            nic="eth0",
            local_addr=local,
            remote_addr=remote,
            local_port=40_000,
            remote_port=5201,
            sport=50_001,
            backup_sport=50_002,
            flow_label=":" in local,
        )
        (known,) = planned.take_up("h1", [steer])
        assert known.dst_addr == tcp_address(remote)
        other = SteerQp(nic="eth0", dst_addr=remote, qpn=17, sport=50_001)
        assert planned.wishes("h1", [known, other]) == [steer]
        assert planned.wishes("h2", [known]) == []


@pytest.mark.parametrize("port", [0, 50_001])
def test_two_connections_over_one_spine_are_placed_apart(port: int) -> None:
    store = ConnectionStore()
    for src, dst in (("h1", "h3"), ("h2", "h4")):
        transfer(store, src, dst)
    names = large(sending(store, {}, 102.0))
    wanted = placed(sending(store, dict.fromkeys(names, port), 102.0))
    assert sorted(wanted[name] or 50_001 for name in names) == [50_001, 50_002]


def test_a_connection_goes_round_a_queue_pair() -> None:
    store = ConnectionStore()
    transfer(store, "h1", "h3")
    qp = QpName("h2", "eth0", ADDRESS["h4"], 17)
    for sport, over_the_other in ((50_001, 50_001), (50_002, 50_002)):
        alone = Flows([qp], ["h4/eth0"], np.array([sport]), np.array([90e6]), np.zeros(1, bool))
        flows = together(alone, sending(store, {}, 102.0))
        assert flows.ends.number.shape == (2, 3)
        wanted = placed(flows)
        connection = next(name for name in large(flows) if connection_of(name))
        assert wanted[connection] == over_the_other
