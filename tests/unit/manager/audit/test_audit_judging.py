"""Groups, majorities, what is unknown or does not apply, waivers."""

from random import Random

import pytest
from audit_world import check_text, host, judged, only, verdicts, with_facts
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cwdp.shared.audit.facts import HostFacts, Subject
from manager.audit.checks import model
from manager.audit.checks.loading import load_checks
from manager.audit.judging import fleet as fleet_module
from manager.audit.judging.alike import agreement, spread
from manager.audit.judging.fleet import MOST_SUBJECTS
from manager.audit.judging.judge import judge
from manager.audit.judging.ranges import among, ranges
from manager.audit.results import ANSWERS, WAIVERS
from manager.audit.summary import exit_status
from tools.sim.audit.faults import FAULTS, can_have, seed_fault
from tools.sim.audit.fleet import fleet

from audit_world import TODAY  # isort: skip

SAME = check_text("host.os", "same_in_group = true")
CHECKS = load_checks()


def many(count: int, os: str = "debian 12", *, first: int = 1, product: str = "p") -> list[HostFacts]:
    return [with_facts(f"gpu{n:03}", product=product, os=os) for n in range(first, first + count)]


def test_all_equal_pass() -> None:
    audit = judged(SAME, *many(7))
    assert audit.results == []
    assert audit.passed == {"c": 7}
    assert set(audit.hosts.values()) == {1}


def test_an_outlier_names_the_majority() -> None:
    result = only(judged(SAME, *many(19), with_facts("gpu100", product="p", os="debian 11")))
    assert (result.verdict, result.host, result.found) == ("outlier", "gpu100", "debian 11")
    assert result.expected == "debian 12, as 19 of 20 have it"
    assert result.group == "p: 20 hosts"


@pytest.mark.parametrize(
    ("most", "others", "verdict"),
    [(1, 1, "divided"), (2, 1, "divided"), (3, 1, "divided"), (4, 1, "divided"), (9, 1, "outlier"), (85, 15, "divided")],
)  # fmt: skip
def test_majorities(most: int, others: int, verdict: str) -> None:
    facts = [*many(most), *many(others, "debian 11", first=most + 1)]
    assert verdicts(SAME, *facts) == [verdict]


def test_a_divided_group_is_one_finding_with_all_values() -> None:
    result = only(judged(SAME, *many(40), *many(20, "debian 11", first=41)))
    assert result.host == "gpu[001-060]"
    assert result.found == "debian 12 on 40 (gpu[001-040]); debian 11 on 20 (gpu[041-060])"
    assert result.subject == ""


def test_hosts_of_other_hardware_are_not_compared() -> None:
    assert verdicts(SAME, *many(10), *many(10, "debian 11", first=50, product="q")) == []


@pytest.mark.parametrize("size", [2, 3, 4])
def test_small_groups_accuse_nobody(size: int) -> None:
    for seed, name in enumerate(("another kernel", "another bios", "old gpu driver", "other name servers")):
        broken, _ = seed_fault(fleet(size, seed, ("h100",)), name, Random(seed))
        audit = judge(CHECKS, broken, today=TODAY)
        assert [result.verdict for result in audit.results] == ["divided"]
        assert exit_status(audit) == 0
        assert exit_status(audit, strict=True) == 1


def test_a_host_that_has_lost_a_part_stays_in_its_group() -> None:
    for seed in range(10):
        facts = fleet(20, seed, ("h100",))
        facts, lost = seed_fault(facts, "a gpu is gone", Random(seed))
        place = next(at for at, each in enumerate(facts) if each.host == lost.host)
        assert can_have(FAULTS["another kernel"], facts[place])
        host_facts = facts[place].subjects[0]
        changed = replace(host_facts, facts={**host_facts.facts, "kernel_release": "5.0"})
        facts[place] = replace(facts[place], subjects=[changed, *facts[place].subjects[1:]])
        found = judge(CHECKS, facts, today=TODAY).results
        assert {(result.host, result.check) for result in found} == {
            (lost.host, "gpus-alike"),
            (lost.host, "kernel-alike"),
        }


def test_numbers_are_held_against_the_median() -> None:
    text = check_text("host.memory_bytes", "same_in_group = true", "tolerance = '5%'")
    facts = [with_facts(f"h{n}", product="p", memory_bytes=1000 + n) for n in range(20)]
    assert verdicts(text, *facts) == []
    result = only(judged(text, *facts, with_facts("h99", product="p", memory_bytes=500)))
    assert (result.verdict, result.host, result.found) == ("outlier", "h99", "500")
    assert result.expected.startswith("1009 (median of 21), give or take 50.")
    halves = [with_facts(f"g{n}", product="p", memory_bytes=500) for n in range(9)]
    assert verdicts(text, *facts, *halves) == ["divided"]
    assert verdicts(text, *facts[:2], halves[0]) == ["divided"]


@given(st.lists(st.floats(-1e6, 1e6), min_size=5, max_size=200), st.floats(1, 1e3))
def test_one_lying_number_moves_no_bound_far(numbers: list[float], tolerance: float) -> None:
    calm = [5.0] * (len(numbers) * 10) + numbers
    found = spread(calm, tolerance, is_share=False)
    assert found.median == 5.0
    assert found.bound == tolerance
    assert found.apart == [abs(each - 5.0) > tolerance for each in calm]


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 300), min_size=1))
def test_a_majority_has_nine_tenths_of_five_or_more(counts: dict[int, int]) -> None:
    found = agreement(counts)  # type: ignore[arg-type]
    members = sum(counts.values())
    has_majority = members >= 5 and max(counts.values()) >= 0.9 * members
    assert found.state == ("same" if len(counts) == 1 else "majority" if has_majority else "divided")


def test_a_declared_value_comes_before_the_majority() -> None:
    facts = [*many(19), with_facts("new", product="p", os="debian 13")]
    declared = check_text("host.os", "value = 'debian 13'", name="d")
    found = judged(SAME + declared, *facts)
    assert {(result.check, result.verdict) for result in found.results} == {("d", "fail")}
    assert len(found.results) == 19
    assert found.passed == {"c": 0, "d": 1}
    for_one = check_text("host.os", "value = 'debian 13'", "hosts = ['new']", name="d")
    assert judged(SAME + for_one, *facts).results == []


def test_conditions_hosts_subjects_and_roles() -> None:
    nics = [
        Subject(kind="nic", name=name, role=role, facts={"driver": driver, "mtu_bytes": 1})
        for name, role, driver in (("a", "back", "x"), ("b", "front", "x"), ("c", "back", "y"))
    ]  # fmt: skip
    own = Subject(kind="host", facts={"modules": ["mod_a"], "cpus": 4})
    facts = [host("h1", own, *nics), host("g1", own, *nics)]

    def found(*lines: str) -> list[str]:
        results = judged(check_text("nic.mtu_bytes", "min = 2", *lines), *facts).results
        return [f"{result.host} {result.subject}" for result in results]

    assert len(found()) == 6
    assert found("role = 'back'", "hosts = 'h*'") == ["h1 a", "h1 c"]
    assert found("subjects = ['a', 'x*']") == ["g1 a", "h1 a"]
    assert found("when = { 'nic.driver' = 'y' }") == ["g1 c", "h1 c"]
    assert found("when = { 'nic.driver' = ['x', 'z'], 'host.cpus' = 4 }", "role = 'front'") == [
        "g1 b",
        "h1 b",
    ]
    assert found("when = { 'host.modules' = 'mod_*' }", "hosts = 'g1'") == ["g1 a", "g1 b", "g1 c"]
    assert found("when = { 'host.cpus' = 5 }") == []
    assert found("when = { 'host.os' = 'absent' }") == []


def test_what_is_missing_is_unknown_with_its_reason() -> None:
    text = check_text("host.os", "value = 'x'")
    result = only(judged(text, with_facts(missing={"os": "permission denied"})))
    assert (result.verdict, result.reason, result.check) == ("unknown", "permission denied", "c")
    assert exit_status(judged(text, with_facts(missing={"os": "permission denied"}))) == 3
    mild = check_text("host.os", "value = 'x'", severity="warn")
    assert exit_status(judged(mild, with_facts(missing={"os": "no"}))) == 0
    assert exit_status(judged(mild, with_facts(missing={"os": "no"})), strict=True) == 3


def test_what_does_not_apply_is_no_finding() -> None:
    text = check_text("host.os", "value = 'x'") + check_text("host.cpus", "min = 1", name="d")
    audit = judged(text, with_facts(cpus=2))
    assert audit.results == []
    assert audit.not_applicable == {"c": 1, "d": 0}
    assert audit.passed == {"c": 0, "d": 1}


def test_an_area_that_timed_out_is_unknown_once_per_check_and_host() -> None:
    nics = [Subject(kind="nic", name=f"n{number}", facts={"is_up": True}) for number in range(8)]
    trouble = {"dcb": "timed out after 10 s"}
    text = check_text("nic.trust", "value = 'dscp'", name="t") + check_text(
        "nic.is_up", "value = true", name="u"
    )
    result = only(judged(text, host("h1", *nics, troubles=trouble)))
    assert (result.check, result.verdict, result.subject) == ("t", "unknown", "")
    assert result.reason == "dcb: timed out after 10 s"


def test_a_host_whose_parts_could_not_be_listed_is_unknown() -> None:
    text = check_text("gpu.has_ecc", "value = true")
    own = Subject(kind="host", facts={"cpus": 1})
    result = only(judged(text, host("h1", own, troubles={"gpus": "NVML hangs"})))
    assert (result.verdict, result.reason) == ("unknown", "gpus: NVML hangs")
    ruled_out = check_text("gpu.has_ecc", "value = true", "when = { 'host.cpus' = 2 }")
    assert "c" not in {r.check for r in judged(ruled_out, host("h1", own, troubles={"gpus": "x"})).results}
    count = check_text("host.gpus", "min = 8")
    assert only(judged(count, host("h1", own, troubles={"gpus": "x"}))).reason == "gpus: x"


def test_whether_a_check_applies_may_be_unknown() -> None:
    nic = Subject(kind="nic", name="n", facts={"mtu_bytes": 1}, missing={"driver": "ethtool failed"})
    text = check_text("nic.mtu_bytes", "min = 2", "when = { 'nic.driver' = 'x' }")
    result = only(judged(text, host("h1", nic)))
    assert result.verdict == "unknown"
    assert result.reason == "whether it applies is not known, for nic.driver: ethtool failed"


def test_what_all_of_a_group_cannot_tell_is_said_once_and_leaves_the_audit_complete() -> None:
    text = check_text("host.bios_version", "same_in_group = true")
    lacking = [with_facts(f"h{n}", product="p", missing={"bios_version": "no DMI"}) for n in range(1, 9)]
    result = only(judged(text, *lacking))
    assert (result.host, result.verdict, result.is_shared) == ("h[1-8]", "unknown", True)
    assert result.group == "p: 8 hosts"
    assert exit_status(judged(text, *lacking)) == 0
    assert exit_status(judged(text, *lacking), strict=True) == 3


def test_what_one_of_a_group_cannot_tell_is_its_own() -> None:
    text = check_text("host.bios_version", "same_in_group = true")
    others = [with_facts(f"h{n}", product="p", bios_version="1") for n in range(8)]
    audit = judged(text, *others, with_facts("odd", product="p", missing={"bios_version": "no DMI"}))
    assert (only(audit).host, only(audit).is_shared) == ("odd", False)
    assert exit_status(audit) == 3


@pytest.mark.parametrize("why", ["permission denied", "Operation not permitted", "timed out after 3 s"])
def test_a_lack_of_rights_or_time_is_never_shared(why: str) -> None:
    text = check_text("host.bios_version", "same_in_group = true")
    audit = judged(text, *[with_facts(f"h{n}", missing={"bios_version": why}) for n in range(8)])
    assert len(audit.results) == 8
    assert exit_status(audit) == 3


def test_a_host_that_cannot_tell_its_product_is_compared_with_those_of_its_processor() -> None:
    facts = [with_facts(f"h{n}", product="p", cpu_model="c", os="debian 12") for n in range(20)]
    odd = with_facts("odd", cpu_model="c", os="debian 11", missing={"product": "no DMI"})
    assert (only(judged(SAME, *facts, odd)).host, only(judged(SAME, *facts, odd)).verdict) == (
        "odd",
        "outlier",
    )
    own = Subject(kind="host", facts={"os": "debian 11"})
    lost = host("odd", own, troubles={"processors": "hangs"})
    assert only(judged(SAME, *facts, lost)).reason == "of which hardware it is, is not known"


def test_a_host_that_does_not_answer_is_unknown() -> None:
    audit = judged(SAME, *many(5), silent={"gpu009": "timed out", "gpu001": "it did answer"})
    result = only(audit)
    assert (result.check, result.host, result.verdict, result.reason) == (
        ANSWERS,
        "gpu009",
        "unknown",
        "timed out",
    )
    assert audit.hosts["gpu009"] == 0
    assert exit_status(audit) == 3
    assert only(judged(SAME, silent=["x"])).reason == "did not answer"


def test_a_host_that_tells_nothing_is_unknown() -> None:
    assert only(judged(SAME, host("h1"))).verdict == "unknown"
    assert only(judged(SAME, host("h1", Subject(kind="nic", name="n")))).check == ANSWERS


def test_what_every_host_has_is_unknown_where_it_is_not_told() -> None:
    text = check_text("host.kernel_release", "version_min = '5.18'")
    assert only(judged(text, with_facts(os="x"))).reason == "it is not told"


def test_a_host_that_no_check_is_about_is_no_finding() -> None:
    audit = judged(check_text("host.os", "value = 'x'", "hosts = 'g*'"), with_facts("h1", os="y"))
    assert audit.results == []
    assert audit.hosts == {"h1": 0}


def test_the_later_facts_of_a_host_count() -> None:
    text = check_text("host.cpus", "value = 2")
    old, new = (replace(with_facts(cpus=cpus), taken_s=at) for cpus, at in ((1, 1.0), (2, 2.0)))
    assert verdicts(text, new, old) == []


def test_a_host_of_too_many_parts_is_judged_in_part() -> None:
    nics = [
        Subject(kind="nic", name=f"n{number}", facts={"mtu_bytes": 2}) for number in range(MOST_SUBJECTS + 5)
    ]
    result = only(judged(check_text("nic.mtu_bytes", "min = 2"), host("h1", *nics)))
    assert result.verdict == "unknown"
    assert "parts" in result.reason


def test_facts_that_an_older_agent_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    newer = {**model.FACTS, "host.os": replace(model.FACTS["host.os"], since=2)}
    monkeypatch.setattr(fleet_module, "FACTS", newer)
    result = only(judged(check_text("host.os", "value = 'x'"), with_facts(cpus=1)))
    assert result.verdict == "unknown"
    assert result.reason.startswith("facts of version 1 do not tell it")


WAIVER = "[[waiver]]\ncheck = '{}'\nhost = '{}'\nsubject = '{}'\nuntil = {}\nreason = 'in repair'\n"


@pytest.mark.parametrize(
    ("waiver", "wanted"),
    [
        (("c", "h1", "*", "2030-06-01"), ["waived"]),
        (("c*", "h*", "", "2031-01-01"), ["waived"]),
        (("c", "h2", "*", "2031-01-01"), ["fail"]),
        (("c", "h1", "n*", "2031-01-01"), ["fail"]),
        (("c", "h1", "*", "2030-05-31"), ["fail", "warn"]),
    ],
)
def test_waivers(waiver: tuple[str, ...], wanted: list[str]) -> None:
    text = check_text("host.cpus", "value = 2") + WAIVER.format(*waiver)
    audit = judged(text, with_facts(cpus=1))
    assert [result.verdict for result in audit.results] == wanted
    if wanted == ["waived"]:
        assert (audit.results[0].reason, audit.results[0].until) == ("in repair", waiver[3])
        assert exit_status(audit, strict=True) == 0
    if "warn" in wanted:
        assert audit.results[1].check == WAIVERS
        assert "2030-05-31" in audit.results[1].found


@pytest.mark.parametrize(
    ("host", "said"), [("fabric", "for: in repair"), ("h1", "for: in repair"), ("h9", "no host is called so")]
)
def test_a_waiver_that_has_expired_says_whether_what_it_names_is_there(host: str, said: str) -> None:
    text = check_text("host.cpus", "value = 1") + WAIVER.format("ib-width", host, "*", "2030-05-31")
    assert said in only(judged(text, with_facts(cpus=1))).found


def test_what_is_unknown_or_another_checks_is_not_waived() -> None:
    text = check_text("host.cpus", "value = 2") + WAIVER.format("*", "*", "*", "2031-01-01")
    assert verdicts(text, with_facts(missing={"cpus": "x"})) == ["unknown"]
    assert verdicts(SAME + WAIVER.format("c", "*", "*", "2031-01-01"), *many(3), *many(3, "x", first=9)) == [
        "waived"
    ]
    assert verdicts(
        SAME + WAIVER.format("c", "gpu*", "*", "2031-01-01"), *many(3), *many(3, "x", first=9)
    ) == ["divided"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["gpu001", "gpu002", "gpu003", "gpu007"], "gpu[001-003,007]"),
        (["gpu99", "gpu100", "gpu101"], "gpu[99-101]"),
        (["gpu098", "gpu099", "gpu100"], "gpu[098-100]"),
        (["gpu9", "gpu09"], "gpu09, gpu9"),
        (["r1-n1", "r1-n2", "r2-n1"], "r1-n[1-2], r2-n1"),
        (["n1.x", "n2.x", "db"], "n[1-2].x, db"),
    ],
)
def test_ranges(names: list[str], text: str) -> None:
    assert ranges(names) == text


@given(st.sets(st.integers(0, 2000)))
def test_ranges_hold_exactly_their_names(numbers: set[int]) -> None:
    text = ranges((f"n{each:04}" for each in numbers), most=10**6)
    if numbers and "more" not in text:
        inside = text.removeprefix("n").strip("[]")
        ends = [piece.split("-") for piece in inside.split(",")]
        assert {n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)} == numbers


@given(
    st.sets(
        st.sampled_from(
            [f"{head}{each:{form}}" for head in ("n", "r1-n") for form in ("d", "03d") for each in range(120)]
        )
    )
)
def test_who_is_among_ranges_is_found_there(names: set[str]) -> None:
    told = ranges(names, most=10**6)
    assert all(map(among(told), names))
    if "more" not in told:
        others = {f"n{each:{form}}" for form in ("d", "03d") for each in range(140)} - names
        assert not any(map(among(told), others))
    assert all(map(among(ranges(names, most=2)), names))


@pytest.mark.parametrize(
    ("name", "told", "is_among"),
    [
        ("gpu007", "gpu[001-003,007]", True),
        ("n10", "n[0-1], n000 and 1 more", True),
        ("n100", "n[10-12] and 1 more", True),
        ("gpu004", "gpu[001-003,007]", False),
        ("gpu7", "gpu[001-003,007]", False),
        ("n2.x", "db, n[1-2].x", True),
        ("db", "db, n[1-2].x", True),
        ("d", "db, n[1-2].x", False),
        ("gpu099", "gpu[001-003,007,3 more]", True),
        ("gpu004", "gpu[001-003,007,3 more]", False),
        ("r9-n1", "r1-n[1-8], r2-n[1-8] and 7 more", True),
        ("r1-n9", "r1-n[1-8], r2-n[1-8] and 7 more", False),
        ("h1", "fabric", False),
    ],
)
def test_who_may_be_among_those_that_are_only_counted_is_among_them(
    name: str, told: str, is_among: bool
) -> None:
    assert among(told)(name) == is_among
