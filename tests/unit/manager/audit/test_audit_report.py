"""The report: a page that needs nothing else, with what hosts tell as text and not as markup."""

from html.parser import HTMLParser
from random import Random

from manager.audit.checks.loading import load_checks
from manager.audit.judging.judge import judge
from manager.audit.report import html
from manager.audit.results import Audit, Result
from manager.audit.today import today
from tools.sim.audit.faults import seed_fault
from tools.sim.audit.fleet import fleet


class _Read(HTMLParser):
    """The text of a page, and the names of its elements and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.elements, self.attributes = "", set[str](), set[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def _page(audit: Audit) -> _Read:
    page = html(audit, title="Audit <1>", ended_s=1_795_783_695.0)
    assert page.startswith("<!doctype html>")
    assert "http" not in page
    return _Read(page)


def test_findings_hosts_and_checks_are_told() -> None:
    told, seeded = seed_fault(fleet(12, 1, ["h100"]), "pcie at half width", Random(1))
    audit = judge(load_checks(), told, today=today())
    read = _page(audit)
    assert (
        {"table", "style", "h1"}
        <= read.elements
        <= {
            *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "th", "td"),
            *("span", "br", "small", "code"),
        }
    )
    assert read.attributes <= {"lang", "charset", "class"}
    for text in (
        "Audit <1>",
        "2026-11-27",
        "pcie-width",
        seeded.host,
        min(seeded.subjects),
        "reseat the card",
    ):
        assert text in read.text
    assert all(check in read.text for check in audit.passed)


def test_what_hosts_tell_is_no_markup() -> None:
    hostile = "<script>alert(1)</script>&\"'"
    result = Result(
        check="x", host=hostile, subject=hostile, verdict="fail", severity="fail", found=hostile,
        expected=hostile, why=hostile, mend=hostile, reference=hostile, reason=hostile, until=hostile,
    )  # fmt: skip
    read = _page(Audit(results=[result], hosts={hostile: 0}, passed={hostile: 1}, not_applicable={}))
    assert "script" not in read.elements
    assert read.text.count(hostile) >= 8


def test_an_audit_without_findings_has_no_table_of_them() -> None:
    read = _page(Audit(results=[], hosts={"h1": 3}, passed={"x": 3}, not_applicable={"y": 1}))
    assert "Findings" not in read.text
    assert "h1" in read.text
