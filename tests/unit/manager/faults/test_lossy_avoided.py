"""Lossy links: nothing is sent over them where others can stand in for them."""

from collections.abc import Iterable

from manager.fabric.routes import DirectedLink, Routes
from manager.faults.dead_links import avoided, kinds
from manager.faults.finding import Finding, Findings, cable


def both(a: str, b: str) -> set[DirectedLink]:
    return {DirectedLink(a, b), DirectedLink(b, a)}


def fabric(leaves: int, spines: int) -> Routes:
    pairs = [(f"l{i}", f"s{j}") for i in range(leaves) for j in range(spines)]
    pairs += [(f"h{i}/nic0", f"l{i}") for i in range(leaves)]
    return Routes(version=1, links=tuple(link for pair in pairs for link in sorted(both(*pair))))


def found(*lossy: tuple[str, str, float], confidence: float = 0.95, kind: str = "lossy") -> Findings:
    findings = Findings()
    for a, b, loss in lossy:
        findings.open(
            Finding(
                number=0,
                kind=kind,  # type: ignore[arg-type]
                subject=cable(DirectedLink(a, b)),
                confidence=confidence,
                evidence=[],
                start_s=0.0,
                loss=loss,
            )
        )
    return findings


def over(findings: Findings, routes: Routes, dead: Iterable[DirectedLink] = ()) -> set[DirectedLink]:
    return avoided(findings, set(dead), routes)


def test_a_lossy_link_is_left_where_there_is_another() -> None:
    assert over(found(("l0", "s0", 0.01)), fabric(2, 2)) == both("l0", "s0")
    assert over(found(("l0", "s0", 0.01)), fabric(2, 1)) == set()


def test_half_of_a_switchs_links_stay_in_use_and_the_worst_are_left_first() -> None:
    three = found(("l0", "s0", 0.01), ("l0", "s1", 0.05), ("l0", "s2", 0.02))
    assert over(three, fabric(4, 4)) == both("l0", "s1") | both("l0", "s2")


def test_dead_links_count_as_left() -> None:
    assert over(found(("l0", "s0", 0.01)), fabric(2, 2), both("l0", "s1")) == both("l0", "s1")


def test_what_jobs_lose_packets_at_is_left_as_well_behind_what_probes_find() -> None:
    routes, losing = fabric(4, 4), [DirectedLink("l0", "s0"), DirectedLink("l1", "s0")]
    assert avoided(Findings(), (), routes, losing) == both("l0", "s0") | both("l1", "s0")
    two = both("l0", "s1") | both("l0", "s2")
    assert avoided(found(("l0", "s1", 0.01), ("l0", "s2", 0.02)), (), routes, losing) == two | both(
        "l1", "s0"
    )
    assert avoided(Findings(), (), fabric(2, 1), [DirectedLink("l0", "s0")]) == set()
    assert avoided(Findings(), (), routes, [DirectedLink("h0/nic0", "l0")]) == set()


def test_links_of_nics_are_in_use_however_much_they_lose_of_little() -> None:
    assert over(found(("h0/nic0", "l0", 0.01)), fabric(2, 2)) == set()


def test_what_is_not_sure_or_only_slow_is_in_use() -> None:
    assert over(found(("l0", "s0", 0.01), confidence=0.5), fabric(2, 2)) == set()
    assert over(found(("l0", "s0", 0.0), kind="slow"), fabric(2, 2)) == set()


def test_links_that_cannot_be_told_apart_are_left_together_or_not_at_all() -> None:
    findings = found(("l0", "s0", 0.01))
    findings.current[1].also = (cable(DirectedLink("s0", "l1")),)
    assert over(findings, fabric(2, 1)) == set()
    assert over(findings, fabric(2, 2)) == both("l0", "s0") | both("l1", "s0")


def test_what_is_wrong_with_a_link_is_told_for_those_that_are_not_used() -> None:
    assert kinds(found(("l0", "s0", 0.01))) == dict.fromkeys(both("l0", "s0"), "is found lossy")
    assert kinds(found(("l0", "s0", 0.0), kind="bit_errors")) == {}
    assert set(kinds(found(("l0", "s0", 0.9), kind="bit_errors")).values()) == {"is found bit errors"}
    assert set(kinds(found(("l0", "s0", 1.0), kind="silent")).values()) == {"is found silent"}
