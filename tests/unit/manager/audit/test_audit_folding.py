"""Alike findings are one row, the gravest first, and nothing that the page is told grows with the fleet."""

import json

import pytest
from audit_world import check_text, host, judged, with_facts

from cwdp.shared.audit.facts import Subject
from manager.audit.compare import compare
from manager.audit.folding import FEW, MOST_LISTED, MOST_ROWS, Wanted, fold, where
from manager.audit.results import FABRIC, Audit, Result
from manager.audit.service.kept import Finished
from manager.view import audit_views

MTU = check_text("nic.mtu_bytes", "min = 9000", name="mtu") + check_text(
    "host.swap_bytes", "value = 0", name="swap", severity="warn"
)


def nics(name: str, mtu_bytes: int, swap_bytes: int = 0) -> object:
    own = Subject(kind="host", facts={"swap_bytes": swap_bytes})
    return host(
        name, own, *(Subject(kind="nic", name=f"n{i}", facts={"mtu_bytes": mtu_bytes}) for i in (0, 1))
    )


def result(**known: object) -> Result:
    return Result(**{"check": "c", "host": "h1", "verdict": "fail", "severity": "fail"} | known)  # type: ignore[arg-type]


def finished(audit: Audit, number: int = 1) -> Finished:
    return Finished(
        number=number,
        level="facts",
        by="alice",
        began_s=10.0,
        ended_s=13.0,
        hosts=sorted(audit.hosts),
        audit=audit,
        network=Audit(results=[], hosts={}, passed={}, not_applicable={}),
    )


def of(results: list[Result], *hosts: str) -> Finished:
    return finished(Audit(results=results, hosts=dict.fromkeys(hosts, 3), passed={"c": 5}, not_applicable={}))


def test_alike_findings_of_several_hosts_and_parts_are_one_row() -> None:
    audit = judged(MTU, *(nics(f"gpu{i:03}", 1500 if i < 4 else 9000, int(i == 4)) for i in range(1, 6)))
    told = audit_views.findings(finished(audit), Wanted())
    assert [(row["checks"], row["where"], row["parts"], row["host"]) for row in told["rows"]] == [
        (["mtu"], "gpu[001-003]", "n[0-1]", None),
        (["swap"], "gpu004", "", "gpu004"),
    ]
    row = told["rows"][0]
    assert (row["found"], row["expected"], row["host_count"], row["result_count"]) == (
        "1500",
        "at least 9000",
        3,
        6,
    )
    assert told["counts"] == {"fail": 6, "warn": 1}
    assert (told["verdict"], told["severity"], told["hosts"], told["row_count"]) == ("fail", "critical", 5, 2)
    assert told["passed"] == 8


def test_what_differs_much_is_one_row_and_what_differs_little_is_several() -> None:
    few = [result(host=f"h{i}", found=str(i)) for i in range(FEW)]
    assert len(fold(few)) == FEW
    many = [*few, result(host="h99", found="99"), result(host="h100", found="99")]
    (row,) = fold(many)
    assert (row.variants, row.found) == (FEW + 1, f"99; 0; 1; {FEW - 2} others")
    told = audit_views.finding(of(many, "h1"), Wanted(), row.key)
    assert told is not None
    assert [each["found"] for each in told["results"]].count("99") == 2
    assert [each["host"] for each in told["results"] if each["is_host"]] == ["h1"]


def test_what_is_unknown_for_one_reason_is_one_row_whatever_its_checks() -> None:
    lacks = {"verdict": "unknown", "reason": "timed out", "why": "w", "mend": "m"}
    rows = audit_views.findings(of([result(check=name, **lacks) for name in "ab"], "h1"), Wanted())["rows"]
    assert [(row["checks"], row["check_count"], row["why"], row["mend"]) for row in rows] == [
        (["a", "b"], 2, "", "")
    ]


def test_the_gravest_come_first_and_what_all_lack_is_apart() -> None:
    verdicts = ["waived", "warn", "divided", "unknown", "outlier", "fail"]
    shared = result(check="s", host="h[1-3]", verdict="unknown", is_shared=True)
    told = audit_views.findings(of([shared, *(result(verdict=each) for each in verdicts)], "h1"), Wanted())
    assert [row["verdict"] for row in told["rows"]] == [
        "fail",
        "outlier",
        "unknown",
        "warn",
        "divided",
        "waived",
    ]
    assert [(row["where"], row["host_count"], row["host"]) for row in told["shared"]] == [("h[1-3]", 0, None)]
    assert told["counts"]["unknown"] == 1


@pytest.mark.parametrize(
    ("wanted", "hosts"),
    [
        (Wanted(), ["gpu1", "gpu10", "x[1]"]),
        (Wanted(host="gpu1"), ["gpu1"]),
        (Wanted(host="gpu1*"), ["gpu1", "gpu10"]),
        (Wanted(host="x[1]"), ["x[1]"]),
        (Wanted(text="PCIE"), ["gpu10"]),
        (Wanted(text="ens"), ["gpu1"]),
        (Wanted(verdicts=frozenset({"warn", "waived"})), ["x[1]"]),
        (Wanted(host="gpu*", verdicts=frozenset({"warn"})), []),
    ],
)
def test_filters(wanted: Wanted, hosts: list[str]) -> None:
    results = [
        result(host="gpu1", subject="ens1"),
        result(host="gpu10", check="pcie-width"),
        result(host="x[1]", verdict="warn", severity="warn"),
    ]
    told = audit_views.findings(of(results, "gpu1", "gpu10", "x[1]"), wanted)
    assert sorted(row["where"] for row in told["rows"]) == hosts
    passed = {"": 8, "gpu1": 3, "x[1]": 3} if not wanted.text else {}
    if wanted.host in passed and not wanted.verdicts:
        assert told["passed"] == (5 if not wanted.host else 3)


def test_counts_are_of_all_verdicts_that_could_be_chosen() -> None:
    results = [result(host="a"), result(host="a", verdict="warn"), result(host="b")]
    told = audit_views.findings(of(results, "a", "b"), Wanted(host="a", verdicts=frozenset({"warn"})))
    assert told["counts"] == {"fail": 1, "warn": 1}
    assert [row["verdict"] for row in told["rows"]] == ["warn"]


def test_what_is_no_host_is_called_as_it_is() -> None:
    groups = [result(host=f"h[{i}-9]") for i in range(10)] + [result(host="h1"), result(host=FABRIC)]
    assert where(groups, {"h1", "h2"}) == (
        "h1, fabric, h[0-9], h[1-9], h[2-9], h[3-9], h[4-9], h[5-9], h[6-9] and 3 more"
    )


@pytest.mark.parametrize("alike", [True, False])
def test_a_large_fleet_makes_no_large_answer(alike: bool) -> None:
    names = [f"gpu{i:05}" for i in range(2000)]
    results = [
        result(check=f"check-{check}", host=name, found="1500" if alike else name, expected="x" * 100)
        for check in range(5 if alike else 300)
        for name in names[: 2000 if alike else 10]
    ]
    audit = of(results, *names)
    told = audit_views.findings(audit, Wanted(), limit=10**9)
    assert len(told["rows"]) == (5 if alike else MOST_ROWS)
    assert told["row_count"] == (5 if alike else 300)
    assert len(json.dumps(told)) < 300_000
    assert len(audit_views.findings(audit, Wanted(), limit=3)["rows"]) == 3
    row = audit_views.finding(audit, Wanted(), told["rows"][0]["key"])
    assert row is not None
    assert len(row["results"]) == min(row["result_count"], MOST_LISTED)
    changed = audit_views.changes(of([]), audit, compare([], results))
    assert len(changed["new"]) == (5 if alike else 50)
    assert changed["new_count"] == (5 if alike else 300)


def test_changes_are_folded_too() -> None:
    before = judged(MTU, *(nics(f"h{i}", 1500, 1) for i in (1, 2, 3)))
    after = judged(MTU, *(nics(f"h{i}", 900 if i < 3 else 9000, 1) for i in (1, 2, 3)), nics("h4", 9000, 1))
    told = audit_views.changes(finished(before), finished(after, 2), compare(before.results, after.results))
    assert (told["older"], told["newer"]) == (1, 2)
    said = {
        kind: [(row["where"], row["before"], row["after"]) for row in told[kind]]
        for kind in ("new", "changed", "gone")
    }
    assert said == {
        "new": [("h4", "", "1")],
        "changed": [("h[1-2]", "fail: 1500", "fail: 900")],
        "gone": [("h3", "", "1500")],
    }


def test_where_the_same_was_found_it_says_what_was_expected() -> None:
    then, now = result(found="a", expected="b"), result(found="a", expected="c")
    (row,) = audit_views.changes(of([then], "h1"), of([now], "h1"), compare([then], [now]))["changed"]
    assert (row["before"], row["after"]) == ("fail: a, expected b", "fail: a, expected c")


def test_keys_stay_and_are_of_one_row_each() -> None:
    results = [result(found=found, verdict=verdict) for found in "ab" for verdict in ("fail", "warn")]
    keys = [row.key for row in fold(results)]
    assert len(set(keys)) == 4
    assert {row.key for row in fold(reversed(results))} == set(keys)
    assert audit_views.finding(of(results, "h1"), Wanted(), "0" * 12) is None


def test_the_verdict_of_a_host_in_short() -> None:
    audit = finished(judged(MTU, nics("h1", 1500), nics("h2", 9000, 1), with_facts("h3", swap_bytes=0)))
    told = [audit_views.verdict_in_short(audit, name) for name in ("h1", "h2", "h3", "nobody")]
    assert [(each["verdict"], each["severity"]) for each in told] == [
        ("fail", "critical"),
        ("warn", "warning"),
        ("pass", "ok"),
        ("unknown", "unknown"),
    ]
    assert told[0]["said"] == "2 fail, 1 pass"
    assert audit_views.verdict_in_short(None, "h1") == {"number": 0, "host": "h1"}


@pytest.mark.parametrize(
    ("asked", "checks"),
    [
        ("gpu002", ["a", "b"]),
        ("gpu009", []),
        ("gpu00[12]", ["a", "b"]),
        ("gpu001", ["a"]),
        ("*9", []),
        ("gpu[001-004]", ["a"]),
        (FABRIC, ["c"]),
        ("", ["a", "b", "c"]),
    ],
)
def test_what_is_about_a_group_is_found_by_each_of_its_hosts(asked: str, checks: list[str]) -> None:
    results = [
        result(check="a", host="gpu[001-004]", verdict="divided"),
        result(check="b", host="gpu002"),
        result(check="c", host=FABRIC),
    ]
    told = audit_views.findings(of(results, *(f"gpu{i:03}" for i in range(1, 10))), Wanted(host=asked))
    assert sorted(name for row in told["rows"] for name in row["checks"]) == checks
    for row in told["rows"]:
        assert audit_views.finding(of(results, "gpu002"), Wanted(), row["key"]) is not None
