"""What is amiss in InfiniBand subnets, as results of an audit: each fault, waivers, readers that are silent, no subnet."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest

from cwdp.errors import ChecksError
from cwdp.shared.ib.subnet import NO_ROUTE, Subnet
from manager.audit.checks.loading import checks_of
from manager.audit.checks.of_fabric import OF_FABRIC
from manager.audit.folding import fold, place
from manager.audit.network.subnets import CHECKS, judged
from manager.audit.results import FABRIC, Audit, Result
from manager.audit.service.network import NOTHING, borne_with, joined
from manager.audit.summary import FAILED, INCOMPLETE, exit_status
from manager.ib.subnets import SubnetNow
from tests.unit.manager.audit.audit_world import TODAY
from tests.unit.manager.ib.ib_worlds import clos, port

NODES, PORTS, LINKS, HOSTS = 24, 64, 32, 16
WHOLE = "InfiniBand subnet read by h0"
Change = Callable[[Subnet], Subnet]


def known(*subnets: Subnet, is_fresh: bool = True) -> list[SubnetNow]:
    return [SubnetNow(f"h{i}", subnet, None, is_fresh) for i, subnet in enumerate(subnets)]


def spread(**known: int) -> Subnet:
    """Routes that are even over all LIDs, and over the first alone."""
    subnet = clos(**known)
    hosts, first = subnet.guids >= 0x3000, subnet.ports["lid"]
    lmc = int(subnet.ports["lmc"].max())
    for row in np.flatnonzero(hosts[subnet.ports["node"]] & (first > 0)).tolist():
        base = int(first[row])
        number = (base - 64) >> lmc
        leaf = number // 4
        for lid in range(base, base + (1 << lmc)):
            others = [4 + each for each in range(4) if each != leaf]
            subnet.tables[others, lid] = 5 + (number + lid) % 4
    return subnet


def of_port(node: str, number: int, **values: int) -> Change:
    def change(subnet: Subnet) -> Subnet:
        ports = subnet.ports.copy()
        for name, value in values.items():
            ports[name][port(subnet, node, number)] = value
        return replace(subnet, ports=ports)

    return change


def of_names(**names: str) -> Change:
    return lambda subnet: replace(subnet, names=tuple(names.get(name, name) for name in subnet.names))


def silent(subnet: Subnet) -> Subnet:
    return replace(subnet, silent=(port(subnet, "l2", 1),))


def of_tables(out: int, *, of: str) -> Change:
    """A switch sends to all hosts but those of the last leaf by one port."""

    def change(subnet: Subnet) -> Subnet:
        tables = subnet.tables.copy()
        tables[subnet.names.index(of), 64:112] = out
        return replace(subnet, tables=tables)

    return change


def told(results: list[Result]) -> set[tuple[str, str, str, str]]:
    return {(one.check, one.verdict, one.host, one.subject) for one in results}


def test_a_whole_subnet_passes() -> None:
    results, passed = judged(known(spread()))
    assert results == []
    assert passed == {
        "ib-state": PORTS, "ib-silent": PORTS, "ib-width": LINKS, "ib-speed": LINKS, "ib-lmc": HOSTS,
        "ib-names": NODES, "ib-routes": 1, "ib-balance": 32,
    }  # fmt: skip
    assert passed.keys() == CHECKS.keys()


@pytest.mark.parametrize(
    ("change", "wanted", "found"),
    [
        (of_port("h5 mlx5_0", 1, width=1), ("ib-width", "fail", "h5", "mlx5_0"), "1 of 4 lanes"),
        (of_port("l1", 2, width=1), ("ib-width", "fail", "h5", "mlx5_0"), "1 of 4 lanes"),
        (of_port("s2", 4, width=2), ("ib-width", "fail", FABRIC, "s2:4 - l3:7"), "2 of 4 lanes"),
        (of_port("h9 mlx5_0", 1, lane_bps=10**10), ("ib-speed", "fail", "h9", "mlx5_0"), "could 25gbit"),
        (of_port("h9 mlx5_0", 1, lmc=0), ("ib-lmc", "warn", "h9", "mlx5_0"), "LMC is 0"),
        (of_port("h2 mlx5_0", 1, state=2), ("ib-state", "fail", "h2", "mlx5_0"), "is not active"),
        (of_port("s0", 1, state=1), ("ib-state", "fail", FABRIC, "s0:1"), "is not active"),
        (silent, ("ib-silent", "warn", FABRIC, "l2:1"), "does not answer"),
        (of_names(s3="s1"), ("ib-names", "warn", FABRIC, "s1"), "2 nodes have the description 's1'"),
        (of_tables(NO_ROUTE, of="l2"), ("ib-routes", "fail", FABRIC, WHOLE), "lead nowhere"),
        (of_tables(6, of="l3"), ("ib-balance", "warn", FABRIC, "l3:6 > s1:4"), "over all LIDs of hosts"),
    ],
)  # fmt: skip
def test_each_fault_is_told_of_its_place(
    change: Change, wanted: tuple[str, str, str, str], found: str
) -> None:
    results, passed = judged(known(change(spread())))
    (one, *_) = [each for each in results if (each.check, each.verdict, each.host, each.subject) == wanted]
    assert found in one.found
    assert all((one.severity == one.verdict, one.expected, one.why, one.mend, one.reference))
    assert passed[one.check] < judged(known(spread()))[1][one.check]
    audit = Audit(results=results, hosts={"h1": 1}, passed=passed, not_applicable={})
    assert exit_status(audit, strict=True) == FAILED
    assert {each.check for each in results} - {"ib-balance"} == {one.check} - {"ib-balance"}


def test_lmc_0_everywhere_is_one_row() -> None:
    results, passed = judged(known(spread(lmc=0)))
    (row,) = [row for row in fold(results) if row.checks == ["ib-lmc"]]
    assert (len(row.results), passed["ib-lmc"]) == (HOSTS, 0)
    assert place(row, {f"h{i}" for i in range(HOSTS)}) == "h[0-9], h[10-15]: mlx5_0"


def test_of_many_uneven_links_the_worst_is_told() -> None:
    results, passed = judged(known(of_tables(6, of="l3")(spread())))
    told = [one for one in results if one.check == "ib-balance"]
    assert {one.subject for one in told} == {"l3:6 > s1:4"}
    assert len(told) == 2
    assert passed["ib-balance"] < LINKS - 1


def test_a_description_is_one_hosts_in_all_subnets() -> None:
    one = spread()
    other = replace(one, guids=one.guids + np.uint64(0x100000))
    other = of_names(**{name: f"second-{name}" for name in one.names if name != "h4 mlx5_0"})(other)
    results, passed = judged(known(one, other))
    assert told(results) == {("ib-names", "warn", "h4", "mlx5_0")}
    assert passed["ib-names"] == 2 * NODES - 2
    assert passed["ib-routes"] == 2


def test_hosts_of_one_description_are_each_named() -> None:
    results, _ = judged(
        known(of_names(**{"h4 mlx5_0": "localhost mlx5_0", "h7 mlx5_0": "localhost mlx5_0"})(spread()))
    )
    assert told(results) == {
        ("ib-names", "warn", "localhost", "mlx5_0"), ("ib-names", "warn", "localhost", "mlx5_0-0000000000003007"),
    }  # fmt: skip


def test_what_a_reader_told_that_is_silent_is_unknown() -> None:
    bad = of_port("h5 mlx5_0", 1, width=1)(spread())
    results, passed = judged(known(bad, is_fresh=False))
    assert told(results) == {(check, "unknown", FABRIC, WHOLE) for check in CHECKS}
    assert passed == {}
    assert len(fold(results)) == 1
    assert exit_status(Audit(results=results, hosts={"h1": 1}, passed={}, not_applicable={})) == INCOMPLETE


def test_another_subnet_that_is_fresh_is_judged_all_the_same() -> None:
    one = spread()
    other = replace(
        one, guids=one.guids + np.uint64(0x100000), names=tuple(f"second-{name}" for name in one.names)
    )
    results, passed = judged([*known(one, is_fresh=False), *known(other)])
    assert {one.verdict for one in results} == {"unknown"}
    assert passed["ib-width"] == LINKS


def test_without_a_subnet_nothing_is_said() -> None:
    assert judged([]) == ([], {})


WAIVER = "[[waiver]]\ncheck = '{}'\nhost = '{}'\nsubject = '{}'\nuntil = {}\nreason = 'in repair'\n"


@pytest.mark.parametrize(
    ("waiver", "verdict"),
    [
        (("ib-width", "h5", "mlx5_0", TODAY), "waived"),
        (("ib-*", "*", "*", TODAY + timedelta(30)), "waived"),
        (("ib-width", "h6", "*", TODAY), "fail"),
        (("ib-speed", "h5", "*", TODAY), "fail"),
        (("ib-width", "h5", "mlx5_1", TODAY), "fail"),
        (("ib-width", "h5", "*", TODAY - timedelta(1)), "fail"),
    ],
)
def test_waivers_hold_for_what_is_of_the_network(waiver: tuple[str, str, str, date], verdict: str) -> None:
    checks = checks_of([("own.toml", WAIVER.format(*waiver))])
    results, passed = judged(known(of_port("h5 mlx5_0", 1, width=1)(spread())))
    network = Audit(results=results, hosts={}, passed=passed, not_applicable={})
    (one,) = joined(NOTHING, borne_with(network, checks, TODAY)).results
    assert one.verdict == verdict
    assert one.reason == ("in repair" if verdict == "waived" else "")
    assert network.results[0].verdict == "fail"


def test_what_is_unknown_is_not_waived() -> None:
    checks = checks_of([("own.toml", WAIVER.format("*", "*", "*", TODAY))])
    results, _ = judged(known(spread(), is_fresh=False))
    network = Audit(results=results, hosts={}, passed={}, not_applicable={})
    assert {one.verdict for one in borne_with(network, checks, TODAY).results} == {"unknown"}


def test_a_waiver_of_no_check_of_the_network_is_a_mistake() -> None:
    for name in sorted(OF_FABRIC):
        assert checks_of([("own.toml", WAIVER.format(name, "*", "*", TODAY))]).waivers
    with pytest.raises(ChecksError, match="did you mean 'ib-width'"):
        checks_of([("own.toml", WAIVER.format("ib-widht", "*", "*", TODAY))])
