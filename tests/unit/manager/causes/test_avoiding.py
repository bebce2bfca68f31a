"""Links that lose jobs' packets are avoided for a while, and for longer when they do so again."""

from manager.causes.avoiding import AVOIDED_MOST_S, AVOIDED_S, FORGET_S, links_to_avoid
from manager.fabric.routes import DirectedLink

LINK, OTHER = DirectedLink("l1", "s1"), DirectedLink("l1", "s2")


def test_one_is_avoided_for_a_while_however_often_it_is_named_meanwhile() -> None:
    links = links_to_avoid()
    for second in range(20):
        links.suspect(LINK, float(second))
    links.suspect(OTHER, 30.0)
    assert links.now(AVOIDED_S - 1) == {LINK, OTHER}
    assert links.now(AVOIDED_S) == {OTHER}


def test_each_relapse_lasts_twice_as_long_up_to_a_limit() -> None:
    links, now_s, lasted = links_to_avoid(), 0.0, list[float]()
    for _ in range(10):
        links.suspect(LINK, now_s)
        begin_s = now_s
        while LINK in links.now(now_s):
            now_s += 10.0
        lasted.append(now_s - begin_s)
    assert lasted[:3] == [AVOIDED_S, 2 * AVOIDED_S, 4 * AVOIDED_S]
    assert lasted[-1] == AVOIDED_MOST_S


def test_one_that_has_been_well_for_long_begins_anew() -> None:
    links = links_to_avoid()
    links.suspect(LINK, 0.0)
    links.suspect(LINK, AVOIDED_S)
    well_s = 3 * AVOIDED_S + FORGET_S
    assert links.now(well_s) == set()
    links.suspect(LINK, well_s)
    assert links.now(well_s + AVOIDED_S) == set()
