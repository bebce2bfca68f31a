"""The page's files: nothing of them comes from elsewhere but what is recorded, with its licence, and they fit together."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from tools.vendor.__main__ import FILES, HERE, SUMS, rewritten

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "manager/page/static"
OWN = sorted(path for path in STATIC.rglob("*") if path.is_file() and "vendor" not in path.parts)
MODULES = sorted((STATIC / "js").rglob("*.js"))
ORIGIN = re.compile(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", re.IGNORECASE)
SVG = "http://www.w3.org/2000/svg"


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_what_was_copied_is_what_was_recorded() -> None:
    sums = json.loads(SUMS.read_text())
    assert {path: hashlib.sha256((ROOT / path).read_bytes()).hexdigest() for path in sums} == sums
    there = [*(STATIC / "vendor").iterdir(), *(ROOT / "tests/page/vendor").iterdir()]
    assert sorted(map(name, there)) == sorted(sums) == sorted(map(name, FILES))


def test_every_library_has_its_licence_beside_it() -> None:
    for path, source in FILES.items():
        licence = next(each for each, of in FILES.items() if of == f"{source.split('/')[0]}/LICENSE")
        assert licence.parent == path.parent


def test_the_lock_file_has_sums_and_no_address() -> None:
    lock = json.loads((HERE / "package-lock.json").read_text())
    wanted = json.loads((HERE / "package.json").read_text())
    packages = {path: each for path, each in lock["packages"].items() if path}
    assert {path.removeprefix("node_modules/") for path in packages} == {
        *wanted["dependencies"],
        *wanted["devDependencies"],
    }
    assert all(each["integrity"].startswith("sha512-") for each in packages.values())
    assert not ORIGIN.search((HERE / "package-lock.json").read_text())


def test_imports_by_name_become_imports_by_path() -> None:
    assert rewritten('import{options as n}from"preact";\n') == 'import{options as n}from "./preact.mjs";\n'
    assert rewritten("a;\n//# sourceMappingURL=a.map\n") == "a;\n"


@pytest.mark.parametrize("path", OWN, ids=name)
def test_no_file_of_the_page_names_another_origin(path: Path) -> None:
    assert ORIGIN.findall(path.read_text().replace(SVG, "")) == []


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_makes_no_markup_of_data_and_imports_what_is_there(path: Path) -> None:
    text = path.read_text()
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|dangerouslySet", text)
        == []
    )
    for target in re.findall(r'^(?:import|export) .*?from "(.+?)";|^import "(.+?)";', text, re.MULTILINE):
        assert (path.parent / "".join(target)).resolve().is_file(), target
    assert len(text.splitlines()) <= 500
    assert text.startswith("/** ")


def test_the_first_page_holds_no_script_and_no_style_of_its_own() -> None:
    text = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", text) == []
    for target in re.findall(r'(?:href|src)="(.+?)"', text):
        assert (STATIC / target).is_file(), target
