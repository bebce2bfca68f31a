"""Synthetic fleets: uniform ones have no finding, seeded faults are found and named, and nothing else is accused."""

from datetime import date
from random import Random

import msgspec
import pytest

from cwdp.shared.audit.facts import HostFacts
from manager.audit.checks.loading import load_checks
from manager.audit.judging.judge import judge
from manager.audit.results import Result
from manager.audit.summary import exit_status
from tools.sim.audit.faults import FAULTS, can_have, seed_fault
from tools.sim.audit.fleet import fleet
from tools.sim.audit.kinds import KINDS

TODAY = date(2030, 6, 1)
SEEDS = 4
CHECKS = load_checks()


def accusing(results: list[Result]) -> list[Result]:
    """All but what a kind of host cannot tell."""
    return [result for result in results if not result.is_shared]


def findings(facts: list[HostFacts]) -> list[Result]:
    return accusing(judge(CHECKS, facts, today=TODAY).results)


@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
def test_a_uniform_fleet_of_500_has_no_finding(kind: str) -> None:
    kinds = tuple(KINDS) if kind == "mixed" else (kind,)
    for seed in range(SEEDS):
        audit = judge(CHECKS, fleet(500, seed, kinds), today=TODAY)
        assert accusing(audit.results) == []
        assert exit_status(audit) == 0
        assert all(audit.hosts.values())
        assert len(audit.hosts) == 500


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_alone_has_no_finding(kind: str) -> None:
    assert findings(fleet(1, 7, (kind,))) == []


def test_there_are_enough_kinds_of_faults_and_hosts() -> None:
    assert len(FAULTS) >= 40
    assert len(KINDS) >= 4


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_named_and_nothing_else_is_accused(name: str) -> None:
    tried = 0
    for seed in range(5):
        for kinds in [*[(kind,) for kind in KINDS], tuple(KINDS)]:
            facts = fleet(48, seed, kinds)
            if not any(can_have(FAULTS[name], each) for each in facts):
                continue
            broken, seeded = seed_fault(facts, name, Random(seed))
            found = findings(broken)
            assert found, (name, kinds, seed)
            for result in found:
                assert result.host == seeded.host, result
                assert result.subject in seeded.subjects, result
                assert result.check in seeded.checks, result
                assert result.verdict in ("fail", "warn", "outlier"), result
                assert result.why
                assert result.mend
            tried += 1
    assert tried >= 5


def test_several_faults_at_once_are_all_named() -> None:
    for seed in range(10):
        rng = Random(seed)
        facts = fleet(200, seed)
        names = rng.sample(sorted(FAULTS), 10)
        wanted = []
        for name in names:
            facts, seeded = seed_fault(facts, name, rng)
            wanted.append(seeded)
        found = findings(facts)
        for seeded in wanted:
            assert any(r.host == seeded.host and r.check in seeded.checks for r in found), seeded
        guilty = {seeded.host for seeded in wanted}
        assert {result.host for result in found} <= guilty


def test_facts_survive_their_way_over_the_bus() -> None:
    facts = fleet(8, 3)
    packed = msgspec.msgpack.encode(facts)
    again = msgspec.msgpack.decode(packed, type=list[HostFacts])
    assert again == facts
    assert findings(again) == []
