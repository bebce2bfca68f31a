"""What pictures are made from: codes, classes, colours, deltas; and large ones."""

import numpy as np
import pytest
from page_server import PageServer
from synthetic import LOWEST, RATIO, Synthetic

from tools.browser import Browser

IMPORT = "const done = arguments[0]; import('{url}').then((module) => {{ {work} }}).then(done, (error) => done(String(error)))"


def run(browser: Browser, server: PageServer, module: str, work: str) -> object:
    """Do something with a module of the page, without the page."""
    browser.open(f"{server.url}icon.svg", shows="svg")
    return browser.driver.execute_async_script(IMPORT.format(url=f"{server.url}js/{module}", work=work))


def test_codes_are_what_the_contract_says(browser: Browser, server: PageServer) -> None:
    work = (
        f"return [0, 1, 2, 3, 255].map((code) => module.decoded(code, {{lowest: {LOWEST}, ratio: {RATIO}}}))"
    )
    found = run(browser, server, "pictures/classes.js", work)
    assert found == [None, 0, LOWEST, *(pytest.approx(LOWEST * RATIO ** (code - 2)) for code in (3, 255))]


def test_classes_cover_all_values_and_what_is_not_known_has_none(
    browser: Browser, server: PageServer
) -> None:
    work = (
        "const from = module.bounds('spread');"
        "return [null, 0, 9999, 1e4, 5e4, 2e5, 1e9].map((value) => module.classOf(value, from))"
    )
    assert run(browser, server, "pictures/classes.js", work) == [-1, 0, 0, 1, 2, 3, 4]


def test_a_delta_changes_its_cells_and_no_others(browser: Browser, server: PageServer) -> None:
    work = (
        "const known = {version: 1, names: ['a', 'b'], codes: new Uint8Array([1, 2, 3, 4]), worst: []};"
        "const next = module.applied(known, {version: 3, from: 1, cells: [1, 3], codes: btoa('\\x09\\x00')});"
        "return [[...next.codes], next.version, next.names, [...known.codes]]"
    )
    assert run(browser, server, "matrix.js", work) == [[1, 9, 3, 0], 3, ["a", "b"], [1, 2, 3, 4]]


def test_what_was_not_probed_is_hatched_and_never_a_colour(browser: Browser, server: PageServer) -> None:
    work = """
        const pixels = new Uint32Array(400);
        const classes = Uint32Array.from({length: 256}, (_, i) => 100 + i);
        module.paint(pixels, {width: 20, height: 20, left: 0, top: 0, cell: 6},
            {codes: new Uint8Array([0, 7, 9, 0]), rows: 2, columns: 2}, {classes, paper: 1, hatch: 2});
        return [...pixels];
    """
    pixels = np.array(run(browser, server, "pictures/paint.js", work)).reshape(20, 20)
    for cell in (pixels[:6, :6], pixels[6:12, 6:12]):
        assert set(cell.ravel()) == {1, 2}
        assert 4 <= np.count_nonzero(cell == 2) <= 12
    assert set(pixels[:6, 6:12].ravel()) == {107}
    assert set(pixels[6:12, :6].ravel()) == {109}
    assert set(pixels[12:].ravel()) | set(pixels[:, 12:].ravel()) == {1}


@pytest.mark.parametrize("leaves", [1, 40, 313])
def test_a_heat_map_of_any_size(leaves: int, browser: Browser, pictures) -> None:
    with PageServer(Synthetic(leaves=leaves)) as server:
        browser.open(server.url, shows=".heatmap canvas")
        browser.until_text("Rows are sources", ".heatmap output")
        browser.js("document.querySelector('.map').focus()")
        browser.press("ARROW_DOWN", "PAGE_DOWN", "END", "+")
        name = browser.js("return document.querySelector('.heatmap output').innerText")
        assert name.count(">") == 1
        assert browser.overflow() <= 0
        browser.picture(pictures / f"fleet-{leaves}-leaves.png")
        assert browser.complaints() == []


def test_a_group_of_the_map_opens_and_closes(browser: Browser) -> None:
    with PageServer(Synthetic(leaves=40)) as server:
        browser.open(f"{server.url}#/map")
        browser.until_text("all leaves", ".tiers")
        browser.click(".tiers a[href*=open]")
        browser.until_text("10.254.1.40", ".tiers")
        browser.click(".ways a")
        browser.until_text("all leaves", ".tiers")
