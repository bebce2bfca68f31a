"""Agents whose NICs probe by UD queue pairs: what they report of paths and clocks, and of a spine that is cut."""

from typing import Any

import pytest

from tools.rdma.guest import UD_MESH
from tools.rdma.scenarios.ud_mesh import LOST

PATHS = 8


@pytest.fixture
def mesh(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = report[UD_MESH]
    assert "error" not in found, f"{found['error']}\n{found['logs']}"
    return found


def test_nics_are_probed_without_a_dataplane(mesh: dict[str, Any]) -> None:
    assert [(nic["transport"], nic["mode"], nic["reason"]) for nic in mesh["nics"]] == [
        ("ud", "absent", "ok")
    ] * 2


def test_every_path_is_reported_by_both_ends(mesh: dict[str, Any]) -> None:
    assert len(mesh["before"]) == 2 * PATHS
    assert all(path["lost"] < path["sent"] and path["rtt_min_ns"] > 0 for path in mesh["before"])


def test_delays_are_told_on_the_timeline(mesh: dict[str, Any]) -> None:
    timed = [path for path in mesh["after"] if path["fwd_min_ns"] is not None]
    assert {path["src"] for path in timed} == {path["src"] for path in mesh["after"]}
    for path in timed:
        assert min(path["fwd_min_ns"], path["rev_min_ns"]) >= -path["bound_ns"]
        assert path["fwd_p99_ns"] + path["rev_p99_ns"] >= path["rtt_min_ns"]


def test_clocks_seconds_apart_are_on_one_timeline(mesh: dict[str, Any]) -> None:
    """No exchange leaves an offset open by more than half its round trip."""
    assert {host["state"] for host in mesh["clock"]} == {"synced"}
    shown = [
        local_ns + host["offset_ns"] + host["drift_ppb"] * 1e-9 * (local_ns - host["ref_local_ns"])
        for host, local_ns in zip(mesh["clock"], mesh["local_ns"], strict=True)
    ]
    assert abs(mesh["local_ns"][0] - mesh["local_ns"][1]) > 10**9
    assert abs(shown[0] - shown[1]) < max(path["rtt_min_ns"] for path in mesh["after"])


def test_paths_of_a_cut_spine_are_lost_at_both_ends_and_no_others(mesh: dict[str, Any]) -> None:
    lost, alive = (
        [path for path in mesh["after"] if (path["loss"] > LOST / 2) is dead] for dead in (True, False)
    )
    assert lost
    assert alive
    ways = {(path["src"], path["sport"], path["reply_sport"]) for path in lost}
    sources = sorted({src for src, _, _ in ways})
    assert {(sport, back) for src, sport, back in ways if src == sources[0]} == {
        (back, sport) for src, sport, back in ways if src == sources[1]
    }
