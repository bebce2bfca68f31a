"""What is done to a job, and when what is said of it is right."""

from typing import Any

import pytest
from click.testing import CliRunner

from tools.experiments.causes.model import (
    KINDS,
    STALL,
    Kind,
    Meanwhile,
    Setting,
    Trouble,
    draw,
    fared,
    judge,
    summarise,
)
from tools.experiments.causes.run import causes
from tools.lab import LabSpec
from tools.lab.topology import Topology

TOPOLOGY = Topology(LabSpec(name="x", hosts_per_leaf=4, spines=2))
S = 10**9
SETTING = Setting("ring", 1_000_000, 0.3, 0.03)


def row(number: int, kind: str, subject: str, told_s: float, rank: str | None = None) -> dict[str, Any]:
    return {"number": number, "kind": kind, "subject": subject, "told_s": told_s, "rank": rank}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_each_trouble_is_of_the_job_that_is_looked_at(kind: Kind, seed: int) -> None:
    trouble = draw(kind, TOPOLOGY, seed)
    assert draw(kind, TOPOLOGY, seed) == trouble
    mine, other = SETTING.plans(TOPOLOGY, trouble)
    (job,), (beside,) = mine.communicators, other.communicators
    assert not set(job.ranks) & set(beside.ranks)
    assert {flow.qpn for flow in mine.flows}.isdisjoint(flow.qpn for flow in other.flows)
    if trouble.nic:
        assert trouble.nic in job.ranks
    stalls = [rank.stall for rank in mine.ranks if rank.stall is not None]
    assert stalls == ([STALL] if kind == "stall" else [])
    assert all(rank.stall is None for rank in other.ranks)


def test_links_are_between_switches_but_that_of_a_nic() -> None:
    for seed in range(10):
        for kind in ("loss", "cut"):
            link = TOPOLOGY.links[draw(kind, TOPOLOGY, seed).link]  # type: ignore[arg-type]
            assert {link.a.node, link.b.node} <= set(TOPOLOGY.switches)
        of_nic = draw("nic", TOPOLOGY, seed)
        link = TOPOLOGY.links[of_nic.link]
        assert of_nic.nic.partition("/")[0] in {link.a.node, link.b.node}


def outcome(trouble: Trouble, *rows: dict[str, Any]) -> tuple[str, int]:
    found = judge(trouble, TOPOLOGY, rows, 100.0, 10.0)
    return found.outcome, found.others


def test_what_is_told_in_time_of_the_right_nic_is_right() -> None:
    trouble = Trouble("compute", nic="h3/nic0")
    assert outcome(trouble, row(1, "compute", "h3/nic0", 105.0, "h3/nic0")) == ("right", 0)
    assert outcome(trouble, row(1, "compute", "h3/nic0", 115.0, "h3/nic0")) == ("late", 0)
    assert outcome(trouble, row(1, "compute", "h5/nic0", 105.0, "h5/nic0")) == ("wrong", 1)
    assert outcome(trouble, row(1, "host", "h3/nic0", 105.0, "h3/nic0")) == ("wrong", 1)
    assert outcome(trouble) == ("missed", 0)
    assert outcome(trouble, row(1, "compute", "h3/nic0", 95.0, "h3/nic0")) == ("missed", 0)


def test_a_link_is_right_by_both_of_its_ends_whichever_way() -> None:
    trouble = Trouble("loss", link="l1-s2")
    a, b = (str(TOPOLOGY.router_addresses(node)[0]) for node in ("l1", "s2"))
    assert outcome(trouble, row(1, "link", f"{a} - {b}", 101.0)) == ("right", 0)
    assert outcome(trouble, row(1, "link", f"{b} > {a}", 101.0)) == ("right", 0)
    far = str(TOPOLOGY.router_addresses("s1")[0])
    assert outcome(trouble, row(1, "link", f"{a} - {far}", 101.0)) == ("wrong", 1)


def test_unknown_is_neither_right_nor_wrong_and_what_comes_after_what_is_right_counts_apart() -> None:
    trouble = Trouble("nic", nic="h3/nic0", link="h3-l1")
    right = row(2, "nic", "h3/nic0", 108.0, "h3/nic0")
    assert outcome(trouble, row(1, "unknown", "h1", 101.0)) == ("missed", 0)
    assert outcome(trouble, row(1, "unknown", "h1", 101.0), right) == ("right", 0)
    assert outcome(trouble, right, row(3, "link", "x > y", 109.0)) == ("right", 1)
    assert outcome(trouble, row(1, "link", "x > y", 101.0), right) == ("wrong", 1)


def test_of_a_healthy_job_nothing_is_to_be_said() -> None:
    trouble = Trouble("healthy")
    assert outcome(trouble) == ("right", 0)
    assert outcome(trouble, row(1, "compute", "h1/nic0", 103.0, "h1/nic0")) == ("wrong", 1)


def test_a_rival_is_spared_that_makes_no_iteration_longer_and_of_which_nothing_is_told() -> None:
    def found(kind: Kind, longer: float | None, *rows: dict[str, Any]) -> str:
        return judge(Trouble(kind), TOPOLOGY, rows, 100.0, 10.0, meanwhile=Meanwhile(longer)).outcome

    assert found("rival", 0.02) == "spared"
    assert found("rival", 0.2) == found("rival", None) == found("cut", 0.02) == "missed"
    assert found("rival", 0.02, row(1, "contention", "a > b", 104.0)) == "right"
    assert found("rival", 0.02, row(1, "compute", "h1/nic0", 104.0, "h1/nic0")) == "wrong"
    spared = judge(Trouble("rival"), TOPOLOGY, [], 100.0, 10.0, meanwhile=Meanwhile(0.0))
    assert summarise("rival", [spared])["to_tell"] == 0


def test_how_much_longer_iterations_are_and_since_when() -> None:
    ends_s = [1, 2, 3, 4, 5, 6, 7, 8.5, 10, 11.5, 13]
    iterations = [
        {"start_ns": round(start_s * S), "end_ns": round(end_s * S)}
        for start_s, end_s in zip([0, *ends_s], ends_s, strict=False)
    ]
    found = fared(iterations, 4 * S, 10.0)
    assert found.longer == pytest.approx(0.5)
    assert found.slow_after_s == pytest.approx(7.5)
    assert fared(iterations[:7], 4 * S, 10.0) == Meanwhile(0.0)
    assert fared(iterations, 7 * S, 10.0).slow_after_s == pytest.approx(4.5)
    assert fared(iterations, 4 * S, 0.5) == fared(iterations[:4], 4 * S, 10.0) == Meanwhile()


def test_of_a_rival_the_time_counts_from_when_iterations_became_longer() -> None:
    trouble, told = Trouble("rival"), row(1, "contention", "a > b", 115.0)
    for slow_after_s, outcome in ((None, "late"), (4.0, "late"), (6.0, "right")):
        meanwhile = Meanwhile(0.2, slow_after_s)
        found = judge(trouble, TOPOLOGY, [told], 100.0, 10.0, meanwhile=meanwhile)
        assert (found.outcome, found.after_s) == (outcome, 15.0)


def test_cases_are_summed_up_by_kind() -> None:
    trouble = Trouble("rival")
    found = [
        judge(trouble, TOPOLOGY, rows, 100.0, 10.0) for rows in ([], [row(1, "contention", "a > b", 104.0)])
    ]
    assert summarise("rival", found) == {
        "kind": "rival",
        "cases": 2,
        "right": 1,
        "late": 0,
        "missed": 1,
        "wrong": 0,
        "spared": 0,
        "to_tell": 2,
        "others": 0,
        "after_p50_s": 4.0,
        "after_max_s": 4.0,
    }
    assert summarise("healthy", found)["cases"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--cause", "magic"], "magic"), (["--seeds", "0"], "seeds"), (["--compute", "soon"], "soon")],
)
def test_bad_options_are_said(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(causes, arguments)
    assert result.exit_code == 2
    assert said in result.output
