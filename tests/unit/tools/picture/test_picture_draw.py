"""The picture in the README: what is drawn of a recording, and that the committed one is what its data draws to."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pytest

from tools.picture.document import Arm, Recording, load, store
from tools.picture.draw import draw

DOCS = Path(__file__).parents[4] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {"svg", "title", "desc", "style", "rect", "line", "path", "text", "tspan"}
MOST_BYTES, MOST_WIDTH, MOST_HEIGHT = 60_000, 860, 420


def arm(rng: np.random.Generator, bins: int, packets: int, *, died: int) -> Arm:
    return Arm(
        queue_pairs_hit=5,
        queue_pairs_died=died,
        stall_max_ms=23.4,
        mended_s=2.125,
        idle_share=0.25,
        goodput_bps=rng.integers(0, 120_000_000, bins).tolist(),
        sent_s=np.sort(rng.uniform(-0.5, 4.0, packets)).round(3).tolist(),
        owd_us=(10 ** rng.uniform(0, 6, packets)).round(1).tolist(),
    )


def recording(seed: int = 0, *, packets: int = 40) -> Recording:
    rng = np.random.default_rng(seed)
    return Recording(
        recorded="2026-01-02",
        kernel="6.12.9",
        seed=seed,
        hosts=8,
        leaves=2,
        spines=4,
        rate_bps=20_000_000,
        spine_rate_bps=15_000_000,
        link="l1-s2",
        queue_pairs=16,
        offered_bps=100_000_000,
        first_s=-0.5,
        bin_s=0.02,
        ecmp=arm(rng, 225, packets, died=3),
        cwdp=arm(rng, 225, packets, died=0),
    )


def words(svg: str) -> str:
    return " ".join(" ".join(found.itertext()) for found in ET.fromstring(svg).iter(f"{SVG}text"))


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", path)]


def dots(svg: str, kind: str) -> list[tuple[float, float]]:
    """Where the dots of a run are."""
    found = next(p for p in ET.fromstring(svg).iter(f"{SVG}path") if p.get("class") == f"dots {kind}")
    steps = [numbers(move) for move in found.attrib["d"].replace("h0", "").split("m")[1:]]
    assert all(len(step) == 2 for step in steps)
    x, y = np.cumsum(steps, axis=0).T
    return list(zip(x.tolist(), y.tolist(), strict=True))


def test_the_picture_is_what_its_data_draws_to() -> None:
    assert (DOCS / "cut.svg").read_text() == draw(load(DOCS / "cut.json"))


def test_the_data_is_as_it_would_be_stored(tmp_path: Path) -> None:
    store(load(DOCS / "cut.json"), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (DOCS / "cut.json").read_text()


def test_the_data_tells_nothing_of_the_machine() -> None:
    text = (DOCS / "cut.json").read_text()
    assert not re.search(r"/\w+/|localhost|[0-9a-f]{2}(:[0-9a-f]{2}){5}", text)


@pytest.mark.parametrize("svg", [(DOCS / "cut.svg").read_text(), draw(recording())], ids=["docs", "drawn"])
def test_the_picture_is_alone_and_can_be_read(svg: str) -> None:
    root = ET.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= ELEMENTS
    assert float(root.attrib["width"]) <= MOST_WIDTH
    assert float(root.attrib["height"]) <= MOST_HEIGHT
    assert len(svg.encode()) < MOST_BYTES
    outside = svg.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|url\(|@import|@font-face|href|\bon\w+=|data:", outside)
    assert "prefers-color-scheme" in svg


def test_screen_readers_are_told_what_is_seen() -> None:
    root = ET.fromstring(draw(recording()))
    named = root.attrib["aria-labelledby"].split()
    told = {element.get("id"): element.text or "" for element in root.iter() if element.get("id")}
    assert root.attrib["role"] == "img"
    assert [element.tag for element in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert all(told[name] for name in named)
    assert "23 ms" in told[named[1]]


def test_the_words_are_those_of_the_data() -> None:
    shown = words(draw(recording()))
    for expected in (
        "With cwdp",
        "ECMP alone",
        "23 ms",
        "3 timed out and died",
        "none died",
        "0 s",
        "4 s",
        "100%",
    ):
        assert expected in shown
    data = recording()
    died = msgspec.structs.replace(data.cwdp, queue_pairs_died=2)
    all_died = msgspec.structs.replace(data.ecmp, queue_pairs_died=data.ecmp.queue_pairs_hit)
    shown = words(draw(msgspec.structs.replace(data, cwdp=died, ecmp=all_died)))
    assert "none died" not in shown
    assert "all timed out and died" in shown


@pytest.mark.parametrize("seed", range(5))
def test_every_packet_is_a_dot_in_its_place(seed: int) -> None:
    data = recording(seed, packets=300)
    for kind in ("ecmp", "cwdp"):
        kept: Arm = getattr(data, kind)
        places = dots(draw(data), kind)
        assert len(places) == len(kept.sent_s)
        x, y = np.array(places).T
        assert np.corrcoef(x, kept.sent_s)[0, 1] > 0.999
        inside = (np.array(kept.owd_us) > 10) & (np.array(kept.owd_us) < 1e5)
        assert np.corrcoef(y[inside], np.log10(kept.owd_us)[inside])[0, 1] < -0.999


def test_dots_do_not_creep_away_from_their_places() -> None:
    """They are told one from the other, each to a tenth of a pixel."""
    data = recording(7, packets=3_000)
    x = [place[0] for place in dots(draw(data), "ecmp")]
    sent_s = np.array(data.ecmp.sent_s)
    slope, start = np.polyfit(sent_s, x, 1)
    assert np.abs(start + slope * sent_s - x).max() < 0.2


def test_goodput_is_a_level_in_each_bin() -> None:
    level = msgspec.structs.replace(recording().cwdp, goodput_bps=[100_000_000] * 225)
    half = msgspec.structs.replace(recording().ecmp, goodput_bps=[50_000_000] * 225)
    root = ET.fromstring(draw(msgspec.structs.replace(recording(), cwdp=level, ecmp=half)))
    heights = {}
    for path in root.iter(f"{SVG}path"):
        if path.attrib["class"].startswith("line"):
            first = numbers(path.attrib["d"].split("H")[0])[1]
            assert {float(v) for v in re.findall(r"V([\d.]+)", path.attrib["d"])} == {first}
            heights[path.attrib["class"]] = first
    rules = {float(rule.attrib["y1"]) for rule in root.iter(f"{SVG}line") if rule.get("class") == "grid"}
    assert set(heights.values()) <= rules
    assert heights["line cwdp"] < heights["line ecmp"]
