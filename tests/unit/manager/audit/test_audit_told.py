"""Summaries, baselines, and two audits held against each other."""

from random import Random

import pytest
from audit_world import TODAY, check_text, host, judged, with_facts
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cwdp.shared.audit.catalogue import CATALOGUE
from cwdp.shared.audit.facts import Subject
from manager.audit.baseline import OWN, baseline
from manager.audit.checks.loading import checks_of
from manager.audit.compare import changed_facts, compare
from manager.audit.judging.judge import judge
from manager.audit.results import Audit
from manager.audit.summary import exit_status, gravest_in_words, nagios, summary
from tools.sim.audit.faults import seed_fault
from tools.sim.audit.fleet import fleet
from tools.sim.audit.kinds import KINDS

STRICT = check_text("host.cpus", "min = 2", name="a") + check_text(
    "host.swap_bytes", "value = 0", name="b", severity="warn"
)


@pytest.mark.parametrize(
    ("facts", "status", "strictly", "line", "code"),
    [
        ({"cpus": 2, "swap_bytes": 0}, 0, 0, "AUDIT OK - 1 hosts as they ought to be", 0),
        ({"cpus": 1, "swap_bytes": 0}, 1, 1, "AUDIT CRITICAL - fail: a on h1", 2),
        ({"cpus": 2, "swap_bytes": 1}, 0, 1, "AUDIT WARNING - warn: b on h1", 1),
        ({"cpus": "x", "swap_bytes": 1}, 3, 1, "AUDIT UNKNOWN - unknown: a on h1", 3),
        ({"cpus": 2, "swap_bytes": "x"}, 0, 3, "AUDIT OK - unknown: b on h1", 0),
    ],
)
def test_exit_status_and_nagios(
    facts: dict[str, object], status: int, strictly: int, line: str, code: int
) -> None:
    audit = judged(STRICT, with_facts(**facts))
    assert exit_status(audit) == status
    assert exit_status(audit, strict=True) == strictly
    said, found = nagios(audit)
    assert said.startswith(line + " | fail=")
    assert said.endswith("hosts=1")
    assert found == code


def test_the_gravest_is_told_in_words() -> None:
    assert gravest_in_words(judged(STRICT, with_facts(cpus=1, swap_bytes=1))) == "fail: a on h1"
    assert gravest_in_words(judged(STRICT, with_facts(cpus=2, swap_bytes=0))) == ""


def test_an_audit_of_nobody_is_incomplete() -> None:
    nobody = Audit(results=[], hosts={}, passed={}, not_applicable={})
    assert exit_status(nobody) == 3
    assert nagios(nobody)[1] == 3


def test_summary_counts_and_names_the_gravest() -> None:
    audit = judged(
        STRICT, with_facts("h1", cpus=1, swap_bytes=1), with_facts("h2", cpus=2, swap_bytes=0), silent=["h3"]
    )
    found = summary(audit)
    assert found.verdict == "fail"
    assert found.hosts == 3
    assert found.by_host == {"h1": "fail", "h2": "pass", "h3": "unknown"}
    assert found.by_verdict == {"fail": 1, "warn": 1, "unknown": 1, "pass": 2, "not_applicable": 0}
    assert found.incomplete == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_passes_its_own_baseline_and_so_do_others_like_it(kind: str) -> None:
    facts = fleet(10, 5, (kind,))
    text = baseline(facts[0])
    assert text.startswith(f"# Baseline of host {kind}-001, from its facts of 2030-03-17 ")
    checks = checks_of([("baseline.toml", text)], with_defaults=False)
    assert len(checks.checks) > 20
    assert not {check.fact for check in checks.checks} & (OWN - {"host.memory_bytes"})
    audit = judge(checks, facts, today=TODAY)
    assert audit.results == []
    assert audit.passed
    others = fleet(3, 6, tuple(other for other in KINDS if other != kind))
    assert all(not r.fact for r in judge(checks, others, today=TODAY).results)


@pytest.mark.parametrize(
    "name", ["another mtu", "old firmware", "another kernel", "pcie at half width", "old vbios"]
)
def test_a_baseline_finds_what_differs(name: str) -> None:
    good = fleet(2, 1, ("h100",))
    checks = checks_of([("baseline.toml", baseline(good[0]))], with_defaults=False)
    broken, seeded = seed_fault(good, name, Random(1))
    found = judge(checks, broken, today=TODAY).results
    assert found
    assert {(result.host, result.verdict) for result in found} == {(seeded.host, "fail")}


def test_parts_that_differ_on_one_host_have_a_check_each() -> None:
    nics = [
        Subject(kind="nic", name=name, role=role, facts={"device": "d", "mtu_bytes": mtu, "fec": "rs"})
        for name, role, mtu in (("a*", "back", 1), ("b", "back", 2), ("c", "", 3), ("d", "", 3))
    ]  # fmt: skip
    facts = host("h\n1", Subject(kind="host", facts={"product": 'a "b"\\', "os": "\x7f\x1b é"}), *nics)
    checks = checks_of([("b.toml", baseline(facts))], with_defaults=False)
    assert judge(checks, [facts], today=TODAY).results == []
    for at in range(1, 5):
        changed = list(facts.subjects)
        changed[at] = replace(changed[at], facts={**changed[at].facts, "mtu_bytes": 9})
        found = judge(checks, [replace(facts, subjects=changed)], today=TODAY).results
        assert [(result.subject, result.fact) for result in found] == [(changed[at].name, "nic.mtu_bytes")]


VALUES = (
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats()
    | st.text()
    | st.lists(st.text())
    | st.lists(st.integers(0, 9))
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["nic", "rdma", "gpu"]),
            st.text(max_size=4),
            st.sampled_from(["back", "front", ""]),
            st.dictionaries(st.sampled_from([name.partition(".")[2] for name in CATALOGUE]), VALUES, max_size=6),
        ),
        max_size=5,
        unique_by=lambda told: (told[0], told[1]),
    ),
    st.dictionaries(st.sampled_from([n[5:] for n in CATALOGUE if n.startswith("host.")]), VALUES, max_size=6),
    st.text(),
    st.floats(),
)  # fmt: skip
def test_any_host_passes_its_own_baseline(told: list[tuple], own: dict, name: str, taken_s: float) -> None:
    parts = [Subject(kind=kind, name=part, role=role, facts=facts) for kind, part, role, facts in told]
    if not -1e9 < taken_s < 1e10:
        taken_s = float("nan")
    facts = replace(host(name, Subject(kind="host", facts=own), *parts), taken_s=taken_s)
    checks = checks_of([("b.toml", baseline(facts))], with_defaults=False)
    assert not [r for r in judge(checks, [facts], today=TODAY).results if r.verdict != "unknown"]


def test_findings_that_are_new_gone_and_changed() -> None:
    before = judged(STRICT, with_facts("h1", cpus=1, swap_bytes=1), with_facts("h2", cpus=1, swap_bytes=0))
    after = judged(STRICT, with_facts("h1", cpus=0, swap_bytes=0), with_facts("h2", cpus=1, swap_bytes=5))
    found = compare(before.results, after.results)
    assert [(r.check, r.host) for r in found.new] == [("b", "h2")]
    assert [(r.check, r.host) for r in found.gone] == [("b", "h1")]
    assert [(a.check, a.host, a.found, b.found) for a, b in found.changed] == [("a", "h1", "1", "0")]
    nothing = compare(after.results, after.results)
    assert (nothing.new, nothing.gone, nothing.changed) == ([], [], [])


def test_facts_that_changed() -> None:
    nic = Subject(kind="nic", name="n", facts={"mtu_bytes": 1, "is_up": True, "routes": ["a"]})
    before = host("h1", Subject(kind="host", facts={"os": "x", "cpus": 1}), nic)
    changed = replace(nic, facts={"mtu_bytes": 2, "is_up": 1, "routes": ["a"], "fec": "rs"})
    after = host("h1", Subject(kind="host", facts={"cpus": 1}), changed, Subject(kind="gpu", name="0"))
    found = [(c.subject, c.fact, c.before, c.after) for c in changed_facts([before], [after, host("new")])]
    assert found == [
        ("0", "gpu", "", "there"),
        ("", "host.os", "x", ""),
        ("n", "nic.fec", "", "rs"),
        ("n", "nic.is_up", "yes", "1"),
        ("n", "nic.mtu_bytes", "1", "2"),
    ]
    assert changed_facts([before], [before]) == []
