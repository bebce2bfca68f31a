"""Each expectation on each kind of value, and what hosts that lie may tell."""

from typing import Any

import pytest
from audit_world import check_text, host, judged, only, verdicts, with_facts
from hypothesis import given
from hypothesis import strategies as st

from cwdp.shared.audit.catalogue import CATALOGUE
from cwdp.shared.audit.facts import Subject
from manager.audit.checks.loading import load_checks
from manager.audit.judging.expectations import is_older, version
from manager.audit.judging.judge import judge
from manager.audit.judging.values import MOST_SHOWN, shown
from manager.audit.summary import nagios, summary

from audit_world import TODAY  # isort: skip


@pytest.mark.parametrize(
    ("fact", "value", "expectation", "wanted"),
    [
        ("swap_bytes", 0, "value = 0", []),
        ("swap_bytes", 0.0, "value = 0", []),
        ("swap_bytes", 1, "value = 0", ["fail"]),
        ("numa_balancing", False, "value = false", []),
        ("numa_balancing", True, "value = false", ["fail"]),
        ("numa_balancing", 0, "value = false", ["unknown"]),
        ("swap_bytes", True, "value = 1", ["unknown"]),
        ("iommu", "pt", "one_of = ['off', 'pt']", []),
        ("iommu", "translating", "one_of = ['off', 'pt']", ["fail"]),
        ("cpus", 4, "min = 4", []),
        ("cpus", 3, "min = 4", ["fail"]),
        ("cpus", 3, "max = 4", []),
        ("cpus", 4.5, "max = 4", ["fail"]),
        ("modules", ["b", "a"], "value = ['a', 'b']", []),
        ("modules", ["b", "a", "a"], "value = ['a', 'b']", []),
        ("modules", ["a"], "value = ['a', 'b']", ["fail"]),
        ("modules", [], "value = []", []),
        ("modules", ["a"], "value = []", ["fail"]),
        ("modules", ["a", "b"], "contains = 'a'", []),
        ("modules", ["a", "b"], "contains = ['a', 'c*']", ["fail"]),
        ("modules", ["a", "cool"], "contains = ['a', 'c*']", []),
        ("modules", ["a", "cool"], "excludes = ['c*']", ["fail"]),
        ("modules", ["a"], "excludes = ['c*']", []),
        ("modules", "a", "excludes = ['c*']", ["unknown"]),
        ("modules", [1, 2], "excludes = ['c*']", ["unknown"]),
        ("ofed_version", "23.10-1.1.9", "version_min = '23.10'", []),
        ("ofed_version", "23.10-1.1.9", "version_min = '23.10-1.1.10'", ["fail"]),
        ("ofed_version", "what?", "version_min = '23.10'", ["unknown"]),
        ("cpu_model", "x", "equals_fact = 'host.product'", []),
        ("cpu_model", "y", "equals_fact = 'host.product'", ["fail"]),
    ],
)
def test_expectations(fact: str, value: Any, expectation: str, wanted: list[str]) -> None:
    facts = with_facts(**({"product": "x"} | {fact: value}))
    assert verdicts(check_text(f"host.{fact}", expectation), facts) == wanted


def test_bounds_hold_for_each_number_of_a_list() -> None:
    def nic(*dbm: float) -> Subject:
        return Subject(kind="nic", name="n", facts={"module_rx_power_dbm": list(dbm)})

    text = check_text("nic.module_rx_power_dbm", "min = -8")
    assert verdicts(text, host("h", nic(1, -3.5))) == []
    assert verdicts(text, host("h", nic(1, -9.5))) == ["fail"]
    assert verdicts(text, host("h", nic())) == []


def test_a_fact_may_be_held_against_one_of_its_host() -> None:
    nic = Subject(kind="nic", name="n", facts={"driver_version": "6.1"})
    own = Subject(kind="host", facts={"kernel_release": "6.1"})
    text = check_text("nic.driver_version", "equals_fact = 'host.kernel_release'")
    assert verdicts(text, host("h", own, nic)) == []
    other = Subject(kind="host", facts={"kernel_release": "6.2"})
    result = only(judged(text, host("h", other, nic)))
    assert (result.found, result.expected) == ("6.1", "6.2, as host.kernel_release")
    lacking = Subject(kind="host", missing={"kernel_release": "no uname"})
    assert only(judged(text, host("h", lacking, nic))).reason == "no uname"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("28.39.1002 (MT_0000000838)", (28, 39, 1002)),
        ("6.1.0-18-amd64", (6, 1, 0, 18)),
        ("231.2.63.0/pkg 231.1.162.1", (231, 2, 63, 0)),
        ("OFED-23.10-1.1.9", (23, 10, 1, 1, 9)),
        ("v5", (5,)),
        ("debian 12", (12,)),
        ("none", None),
        ("", None),
        ("(1.2)", None),
    ],
)
def test_versions(text: str, numbers: tuple[int, ...] | None) -> None:
    assert version(text) == numbers


@given(
    st.lists(st.integers(0, 99), min_size=1, max_size=5), st.lists(st.integers(0, 99), min_size=1, max_size=5)
)
def test_versions_are_in_order(a: list[int], b: list[int]) -> None:
    assert version(".".join(map(str, a))) == tuple(a)
    longest = max(len(a), len(b))
    padded = [each + [0] * (longest - len(each)) for each in (a, b)]
    assert is_older(a, b) == (padded[0] < padded[1])
    assert not is_older(a, [*a, 0])


WEIRD = [
    float("nan"),
    float("inf"),
    1 << 200,
    "x" * (1 << 20),
    "\x1b[31mred\x07\n",
    ["x"] * 1_000_000,
    [float("nan")],
    [[1], {}],
    {"a": 1},
    b"bytes",
    [None],
    ["x" * (1 << 20)],
    object(),
]


@pytest.mark.parametrize("value", WEIRD, ids=lambda value: str(type(value).__name__))
@pytest.mark.parametrize("fact", ["numa_balancing", "cpus", "iommu", "modules"])
@pytest.mark.parametrize("expectation", ["value", "same_in_group = true"])
def test_what_makes_no_sense_is_unknown_and_never_an_exception(
    fact: str, expectation: str, value: Any
) -> None:
    wishes = {"numa_balancing": "true", "cpus": "1", "iommu": "'x'", "modules": "['a']"}
    text = check_text(f"host.{fact}", f"value = {wishes[fact]}" if expectation == "value" else expectation)
    found = judged(text, with_facts(product="p", cpu_model="c", **{fact: value}))
    if fact == "iommu" and isinstance(value, str) and len(value) < 100:
        assert [result.verdict for result in found.results] == (["fail"] if expectation == "value" else [])
    else:
        assert only(found).verdict == "unknown"
    for result in found.results:
        assert len(result.found) <= MOST_SHOWN
        assert result.found.isprintable()


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=5,
)
CHECKS = load_checks()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["host", "nic", "rdma", "gpu"]),
            st.dictionaries(st.sampled_from([name.partition(".")[2] for name in CATALOGUE]), VALUES, max_size=8),
            st.dictionaries(st.sampled_from([name.partition(".")[2] for name in CATALOGUE]), st.text(), max_size=3),
        ),
        max_size=6,
    ),
    st.dictionaries(st.sampled_from(["pci", "nics", "rdma", "gpus", "links", "x"]), st.text(), max_size=2),
    st.integers(-1, 3),
)  # fmt: skip
def test_whatever_hosts_tell_there_is_a_verdict(
    told: list[tuple[Any, dict[str, Any], dict[str, str]]], troubles: dict[str, str], version: int
) -> None:
    subjects = [
        Subject(kind=kind, name=f"n{number}", role="back", facts=facts, missing=missing)
        for number, (kind, facts, missing) in enumerate(told)
    ]
    facts = [host(name, *subjects, troubles=troubles, version=version) for name in ("a", "b", "c")]
    audit = judge(CHECKS, facts, today=TODAY, silent=["d"])
    assert set(audit.hosts) == {"a", "b", "c", "d"}
    assert all(count >= 0 for count in (*audit.hosts.values(), *audit.passed.values()))
    assert sum(audit.hosts.values()) == sum(audit.passed.values())
    counted = summary(audit)
    assert counted.by_host["d"] == "unknown"
    if not any(facts for _, facts, _ in told):
        assert counted.by_host["a"] == "unknown"
    line, _ = nagios(audit)
    assert line.isprintable()
    for result in audit.results:
        assert (result.found + result.expected + result.reason + result.group).isprintable()


@given(st.text() | st.lists(st.text()) | st.floats() | st.integers())
def test_what_is_shown_is_short_and_on_one_line(value: Any) -> None:
    said = shown(value)
    assert said.isprintable()
    assert 0 < len(said) <= MOST_SHOWN
