"""`cwdp.rdma` on real RDMA devices: what it lists, source ports by flow label, and probes by UD queue pair."""

from typing import Any

import pytest

from tools.rdma.scenarios.verbs import PROBES

Report = dict[str, Any]


@pytest.fixture
def listing(report: Report) -> Report:
    return entry(report, "verbs: listing")


@pytest.fixture(params=[4, 6])
def probes(request: pytest.FixtureRequest, report: Report) -> Report:
    return entry(report, f"verbs: UD probes over IPv{request.param}")


def test_queue_pairs_are_those_that_iproute2_lists(listing: Report) -> None:
    def known(qp: dict[str, Any], number: str, peer: str) -> tuple[object, ...]:
        return (qp["port"], qp[number], qp.get(peer), qp["type"], qp["state"], qp.get("pid"))

    ours = {(qp["device"], *known(qp, "lqpn", "rqpn")) for qp in listing["queue_pairs"]}
    theirs = {(qp["ifname"], *known(qp, "lqpn", "rqpn")) for qp in listing["iproute2"]}
    assert ours == theirs
    assert sum(qp["type"] == "RC" for qp in listing["queue_pairs"]) == 2


def test_the_kernel_owns_what_no_process_does(listing: Report) -> None:
    owners = {(qp["type"], qp["pid"] is None, qp["kernel_owner"]) for qp in listing["queue_pairs"]}
    assert owners == {("RC", False, None), ("GSI", True, "ib_core")}


def test_devices_and_ports(listing: Report) -> None:
    devices = {device["device"] for device in listing["devices"]}
    assert len(devices) == 4
    assert listing["drivers"] == dict.fromkeys(devices, "rxe")
    assert {port["device"] for port in listing["ports"]} == devices
    for port in listing["ports"]:
        assert (port["state"], port["physical_state"], port["link_layer"]) == ("ACTIVE", "LinkUp", "Ethernet")
        assert port["netdev"]
    assert listing["limits"]["max_queue_pairs"] > 0
    assert list(listing["limits"]["active_mtu_bytes"].values()) == [4096]


def test_every_device_has_gids_of_both_families(listing: Report) -> None:
    for device in listing["devices"]:
        gids = [gid for gid in listing["gids"] if gid["device"] == device["device"]]
        assert {gid["type"] for gid in gids} == {"RoCE v2"}
        assert any(gid["gid"].startswith("::ffff:") for gid in gids)
        assert any(gid["gid"].startswith("fd") for gid in gids)


def test_counters_have_moved(listing: Report) -> None:
    assert max(one["value"] for one in listing["counters"] if one["name"] == "sent_pkts") > 0


def test_a_flow_label_leads_to_its_source_port_on_the_wire(report: Report) -> None:
    seen = entry(report, "verbs: flow label")["seen"]
    assert seen
    assert seen == {sport: int(sport) for sport in seen}


def test_every_path_is_answered_and_they_take_several_spines(probes: Report) -> None:
    assert all(path["answered"] for path in probes["paths"])
    assert len(set().union(*map(spines_of, probes["paths"]))) > 1


def test_a_path_keeps_to_one_spine_each_way(probes: Report) -> None:
    assert all(1 <= len(spines_of(path)) <= 2 for path in probes["paths"])


def test_paths_die_with_their_spine_and_live_again(probes: Report) -> None:
    through_cut = [probes["cut"] in spines_of(path) for path in probes["paths"]]
    assert any(through_cut)
    assert [answered == 0 for answered in probes["answered_while_cut"]] == through_cut
    assert all(probes["answered_when_healed"])


def test_the_commands_probe_every_path(report: Report) -> None:
    paths = entry(report, "verbs: UD probes by command")["paths"]
    assert len({path["sport"] for path in paths}) == len(paths) > 1
    assert {(path["sent"], path["lost"]) for path in paths} == {(10, 0)}


def test_another_key_is_not_answered(probes: Report) -> None:
    other = probes["other_key"]
    assert set(other["answered"]) == {0}
    assert other["bad_mac"] > 0


def entry(report: Report, name: str) -> Report:
    """What a scenario recorded, which must have been run."""
    found: Report = report[name]
    assert "error" not in found, found["error"]
    return found


def spines_of(path: dict[str, Any]) -> set[str]:
    """The spines that carried a path's probes or their answers; others see stray packets of the switches at most."""
    return {spine for spine, packets in path["spines"].items() if packets >= PROBES}
